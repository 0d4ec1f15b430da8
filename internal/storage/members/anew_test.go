package members

import (
	"testing"

	"github.com/everynode/everynode/internal/pki"
)

func TestOneAfterAnotherBeginsAnew(t *testing.T) {
	well, silent, learner := func(id string) Server { return Server{ID: id, Serving: true} }, func(id string) Server { return Server{ID: id, Problem: "does not answer"} },
		func(id string) Server { return Server{ID: id, Learner: true} }
	outdated := func(id string) Server {
		return Server{ID: id, Serving: true, PeerStanding: pki.PeerStanding{Outdated: true}}
	}
	for _, test := range []struct {
		what string
		all  []Server
		want bool
	}{
		{"it is alone", []Server{outdated("b")}, true},
		{"of two", []Server{well("a"), outdated("b")}, true},
		{"of two, and the other is silent", []Server{silent("a"), outdated("b")}, false},
		{"of three", []Server{well("a"), outdated("b"), well("c")}, true},
		{"one before it has not begun again", []Server{outdated("a"), outdated("b"), well("c")}, false},
		{"one after it has not begun again", []Server{well("a"), outdated("b"), outdated("c")}, true},
		{"one before it is silent", []Server{silent("a"), outdated("b"), well("c")}, false},
		{"one before it does not serve yet", []Server{{ID: "a"}, outdated("b"), well("c")}, false},
		{"of five, and one is silent", []Server{silent("a"), outdated("b"), well("c"), well("d"), well("e")}, true},
		{"of five, and two are silent", []Server{silent("a"), outdated("b"), silent("c"), well("d"), well("e")}, false},
		{"one joins", []Server{learner("a"), outdated("b"), well("c")}, false},
	} {
		if got := (Beginning{Self: "b", All: test.all}).Now(); got != test.want {
			t.Errorf("%s: %v, want %v", test.what, got, test.want)
		}
	}
}
