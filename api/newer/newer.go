// Package newer knows which objects of Everynode's own kinds hold fields that this program does not know, since a newer
// one wrote them. Whoever reads such an object has it without them, and would store it without them: a policy would be
// weaker, and nobody told. So an object that is read carries the names of these fields, its conditions are unknown,
// nobody follows it, and nobody writes it.
package newer

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotation names the fields of an object that whoever read it does not know. It is never stored by a server of ours:
// each one finds it again. A server in front of this program may have said it.
const Annotation = "everynode.io/unknown-fields"

// Drop is the value of the annotation by which people say, in a write, that these fields are to be given up.
const Drop = "drop"

// What is named at most: how many fields, and how many letters of each.
const (
	maxFields = 5
	maxLength = 120
)

// Fields names the fields of an object that whoever read it did not know; "" where there are none.
func Fields(o metav1.Object) string {
	if named := o.GetAnnotations()[Annotation]; named != Drop {
		return named
	}
	return ""
}

// Dropped reports whether the fields are to be given up.
func Dropped(o metav1.Object) bool { return o.GetAnnotations()[Annotation] == Drop }

// Error says that an object is not to be followed.
type Error struct{ Fields string }

func (e *Error) Error() string {
	return "it has fields that this program does not know, since a newer one wrote them: " + e.Fields +
		"; upgrade this program, or take them out"
}

// Check returns an Error for an object that is not to be followed.
func Check(o metav1.Object) error {
	if fields := Fields(o); fields != "" {
		return &Error{fields}
	}
	return nil
}

// Refusal says why a write is refused by which the fields would be lost, and what to do.
func Refusal(fields string) *field.Error {
	return field.Forbidden(field.NewPath("metadata", "annotations").Key(Annotation),
		"the write would lose fields that this program does not know, since a newer one wrote them: "+fields+
			"; upgrade this program, or give them up by writing "+Drop+" here")
}

// mark has an object carry the fields that were found in it, or say nothing where there are none: a server before this
// one may have named others.
func mark(o metav1.Object, found []string) {
	if Dropped(o) { // it speaks of the write that it came with
		silence(o)
	}
	had := Fields(o)
	switch {
	case len(found) == 0:
		return
	case had != "":
		found = append(found, had)
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[Annotation] = named(found)
	o.SetAnnotations(annotations)
	doubt(o)
}

// NotFollowed is the reason of the conditions of an object whose fields are not all known.
const NotFollowed = "NotFollowed"

// memory are the conditions by which controllers remember what is to be done, and not what people are told.
var memory = []string{"PolicyGone", "DaemonSetGone"}

// doubt has the conditions of an object say that nobody here knows what they were: who wrote them may have known all of
// it, or may have followed it before it was changed.
func doubt(o metav1.Object) {
	status := reflect.Indirect(reflect.ValueOf(o)).FieldByName("Status")
	if status.Kind() != reflect.Struct {
		return
	}
	conditions, is := reflect.Indirect(status).FieldByName("Conditions").Interface().([]metav1.Condition)
	if !is {
		return
	}
	for i := range conditions {
		c := &conditions[i]
		if slices.Contains(memory, c.Type) {
			continue
		}
		c.Status, c.Reason = metav1.ConditionUnknown, NotFollowed
		c.Message = (&Error{Fields(o)}).Error()
	}
}

// silence has an object say nothing.
func silence(o metav1.Object) {
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, Annotation)
	o.SetAnnotations(annotations)
}

// named is one line about fields, however many there are and whatever they are called.
func named(fields []string) string {
	more := len(fields) - maxFields
	if more > 0 {
		fields = fields[:maxFields]
	}
	plain := make([]string, 0, len(fields))
	for _, f := range fields {
		f = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return '?'
		}, strings.ToValidUTF8(f, "?"))
		if letters := []rune(f); len(letters) > maxLength {
			f = string(letters[:maxLength]) + "..."
		}
		plain = append(plain, f)
	}
	line := strings.Join(plain, ", ")
	if more > 0 {
		line = fmt.Sprintf("%s and %d more", line, more)
	}
	return line
}
