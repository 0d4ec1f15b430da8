package turns

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestOrder(t *testing.T) {
	for _, test := range []struct {
		what  string
		known []string
		begin uint32
		do    func(*Servers)
		want  string
	}{
		{"nothing is known", nil, 0, nil, "conf"},
		{"one is known", []string{"a"}, 0, nil, "conf a"},
		{"the configured one is the only one", []string{"conf"}, 0, nil, "conf"},
		{"several are known", []string{"c", "b", "a"}, 0, nil, "a b c conf"},
		{"another node begins elsewhere", []string{"c", "b", "a"}, 1, nil, "b c a conf"},
		{"the configured one is one of several", []string{"conf", "d", "a"}, 0, nil, "a conf d"},
		{"and is begun with by some", []string{"conf", "d", "a"}, 1, nil, "conf d a"},
		{"one that works is kept", []string{"a", "b", "c"}, 0, func(s *Servers) { s.Connected("c") }, "c a b conf"},
		{"one that failed is last", []string{"a", "b", "c"}, 0, func(s *Servers) { s.Failed(start, "a") }, "b c conf a"},
		{"those that failed come in the order in which their pauses end", []string{"a", "b", "c"}, 0, func(s *Servers) {
			s.Failed(start, "a")
			s.Failed(start, "a")
			s.Failed(start, "b")
		}, "c conf b a"},
		{"a pause that is over", []string{"a", "b"}, 0, func(s *Servers) { s.Failed(start.Add(-time.Minute), "a") }, "a b conf"},
		{"one that failed while it was in use", []string{"a", "b"}, 0, func(s *Servers) { s.Connected("a"); s.Failed(start, "a"); s.Connected("b") }, "b conf a"},
	} {
		var s Servers
		s.Learn(start, test.known)
		s.start = test.begin
		if test.do != nil {
			test.do(&s)
		}
		if got := strings.Join(s.Order(start, "conf"), " "); got != test.want {
			t.Errorf("%s: %s, want %s", test.what, got, test.want)
		}
	}
}

func TestAnswered(t *testing.T) {
	var s Servers
	s.Learn(start, []string{"a", "b"})
	s.Connected("a")
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for i, step := range []struct {
		second   int
		ok, turn bool
	}{
		{0, false, false}, {1, false, false}, {2, false, false}, {5, true, false}, // one good answer counts
		{6, false, false}, {20, false, false}, {21, false, true}, // enough, for long enough
		{22, false, false}, {40, false, false}, {41, false, false}, // nobody is in use
	} {
		if got := s.Answered(at(step.second), step.ok); got != step.turn {
			t.Errorf("step %d: turn %v, want %v", i, got, step.turn)
		}
	}
	if got := s.Order(at(21), "a")[0]; got != "b" {
		t.Errorf("the next is %s, want b", got)
	}
}

func TestLearn(t *testing.T) {
	var s Servers
	if !s.Learn(start, []string{"a", "b"}) || s.Learn(start.Add(time.Hour), []string{"a"}) {
		t.Error("what is new is worth keeping, what is not is not")
	}
	if !s.Learn(start.Add(remembered+time.Hour), []string{"a"}) || len(s.Seen) != 1 {
		t.Errorf("after a week without b there are %v", s.Seen)
	}
	var many []string
	for n := range 30 {
		many = append(many, fmt.Sprint(n))
	}
	s.Learn(start.Add(remembered+2*time.Hour), many)
	if len(s.Seen) != most {
		t.Errorf("%d servers are kept, want %d", len(s.Seen), most)
	}
	var spread []string
	for n := range 20 {
		var other Servers
		other.Learn(start, []string{"a", "b", "c"})
		other.SpreadBy(fmt.Sprint("node-", n))
		spread = append(spread, other.Order(start, "conf")[0])
	}
	slices.Sort(spread)
	if got := slices.Compact(spread); len(got) != 3 {
		t.Errorf("20 nodes begin with %v", got)
	}
}
