// Package fitness decides whether the control loops of a server may be those that work. One whose program does not know
// all that is stored would follow no policy that a newer one wrote; where a server lives that knows more, it is that
// one's turn. Where none does, the loops work all the same: all else in the cluster has to go on.
package fitness

import (
	"cmp"
	"fmt"
	"slices"
)

// Server is one of the servers that live, and how much its program knows: the number of the schema of our own kinds, 0
// for a program of before there was one.
type Server struct {
	Name  string
	Knows int
}

// Newer returns the server that knows most of those that know more than this one does; the zero value for none.
func Newer(knows int, living []Server) (best Server) {
	byName := func(a, b Server) int { return cmp.Compare(a.Name, b.Name) }
	for _, s := range slices.SortedFunc(slices.Values(living), byName) {
		if s.Knows > max(knows, best.Knows) {
			best = s
		}
	}
	return best
}

// GivesWay says why the control loops of a server that knows so much are not those that work; "" if they may be.
// Strange are objects with fields that its program does not know.
func GivesWay(knows int, living []Server, strange []string) string {
	newer := Newer(knows, living)
	if newer.Name == "" || len(strange) == 0 {
		return ""
	}
	const named = 3
	some := fmt.Sprint(strange[:min(named, len(strange))])
	if more := len(strange) - named; more > 0 {
		some = fmt.Sprintf("%s and %d more", some, more)
	}
	return fmt.Sprintf("its program does not know all fields of %s, and that of server %s knows more", some, newer.Name)
}
