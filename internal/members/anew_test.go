package members

import (
	"testing"

	"github.com/everynode/everynode/internal/pki"
)

func TestOneAfterAnotherBeginsAnew(t *testing.T) {
	well, silent, learner := func(id string) Server { return Server{ID: id} }, func(id string) Server { return Server{ID: id, Problem: "does not answer"} },
		func(id string) Server { return Server{ID: id, Learner: true} }
	outdated := func(id string) Server { return Server{ID: id, PeerStanding: pki.PeerStanding{Outdated: true}} }
	for _, test := range []struct {
		what    string
		all     []Server
		serving int
		want    bool
	}{
		{"it is alone", []Server{outdated("b")}, 1, true},
		{"of two", []Server{well("a"), outdated("b")}, 2, true},
		{"of two, and the other is silent", []Server{silent("a"), outdated("b")}, 1, false},
		{"of three", []Server{well("a"), outdated("b"), well("c")}, 3, true},
		{"one before it has not begun anew", []Server{outdated("a"), outdated("b"), well("c")}, 3, false},
		{"one after it has not begun anew", []Server{well("a"), outdated("b"), outdated("c")}, 3, true},
		{"one before it is silent", []Server{silent("a"), outdated("b"), well("c")}, 2, false},
		{"one before it does not serve yet", []Server{well("a"), outdated("b"), well("c")}, 2, false},
		{"of five, and one is silent", []Server{silent("a"), outdated("b"), well("c"), well("d"), well("e")}, 4, true},
		{"of five, and two are silent", []Server{silent("a"), outdated("b"), silent("c"), well("d"), well("e")}, 3, false},
		{"one joins", []Server{learner("a"), outdated("b"), well("c")}, 2, false},
	} {
		if got := (Beginning{Self: "b", All: test.all, Serving: test.serving}).Now(); got != test.want {
			t.Errorf("%s: %v, want %v", test.what, got, test.want)
		}
	}
}
