// Package class chooses the class of objects that name none, of any kind that has classes. It is pure.
package class

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Class is a pointer to an object that is a class.
type Class interface {
	comparable
	metav1.Object
}

// Default returns the newest of the classes that are marked as the default, and of those made at once the first by
// name; nil if there is none.
func Default[C Class](all []C, marked func(C) bool) (found C) {
	var none C
	for _, c := range all {
		if marked(c) && (found == none || newer(c, found)) {
			found = c
		}
	}
	return found
}

func newer[C Class](a, b C) bool {
	at, than := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return than.Before(&at) || than.Equal(&at) && a.GetName() < b.GetName()
}
