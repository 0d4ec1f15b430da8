// Package enough says when the check of a long list goes no further. A client is told of a hundred errors at most, and
// a body of 3 MB may hold entries for hundreds of thousands. Pure.
package enough

import (
	"iter"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Told is of how many errors a client is told at once. The library joins their texts one by one, at a cost of the
// square of their number.
const Told = 100

// Errors is after how many errors the check of a long list need not go on.
const Errors = 10 * Told

// Each yields the entries of a list and their indexes, and ends early where the check of it has found more than Errors.
func Each[T any](list []T, found *field.ErrorList) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i := range list {
			if len(*found) > Errors || !yield(i, list[i]) {
				return
			}
		}
	}
}

// Entries yields the keys and values of a map, as Each does.
func Entries[K comparable, V any, M ~map[K]V](entries M, found *field.ErrorList) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for key, value := range entries {
			if len(*found) > Errors || !yield(key, value) {
				return
			}
		}
	}
}
