// Package objectversion compares the resource versions of an object that is known twice:
// from a cache and from the answer to a write, or from two events.
package objectversion

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Older reports whether a is an earlier resource version than b. Versions that cannot be
// compared are not.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
