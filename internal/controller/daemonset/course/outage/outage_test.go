package outage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
)

var policy = &rolloutpolicy.Policy{Failure: rolloutpolicy.Failure{Min: 2}}

var now = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// fleet has nodes in racks, by rack; of each the first ones fell.
func fleet(fallen ...int) (nodes []Node, racks int) {
	q, domains := queue.New(), []rolloutpolicy.Domain{{Key: "rack"}}
	for r, some := range fallen {
		for i := range 5 {
			m := &queue.Member{Name: fmt.Sprintf("r%d-%d", r, i)}
			q.Join(m, map[string]string{"rack": fmt.Sprint(r)}, domains)
			n := Node{Group: m.Group, Has: true, Bound: now.Add(-2 * time.Minute), Fallen: i < some}
			if n.Fallen {
				n.Fell = now.Add(-30 * time.Second)
			}
			nodes = append(nodes, n)
		}
	}
	return nodes, q.Places()
}

func input(nodes []Node, racks int) *Input {
	in := &Input{
		Now: now, Target: "v2", Policy: policy, Places: racks,
		Given: slices.Values(nodes),
	}
	in.Fallen = func(yield func(Node) bool) {
		for _, n := range nodes {
			if n.Fallen && !yield(n) {
				return
			}
		}
	}
	for range in.Fallen {
		in.Count++
	}
	return in
}

// A place is lost where many more fell than elsewhere. Where few are elsewhere it is waited for what is heard of them.
func TestPlacesThatAreLost(t *testing.T) {
	for _, c := range []struct {
		what              string
		fallen            []int
		sure              bool
		places, down, all int
	}{
		{"a rack without power", []int{5, 0, 0, 0, 0, 0}, true, 1, 5, 5},
		{"two of them", []int{0, 5, 0, 5, 0, 0, 0}, true, 2, 10, 10},
		{"one that shares its fate with everybody", []int{2, 2, 2, 2, 2}, true, 0, 0, 0},
		{"one in each, and a rack", []int{1, 1, 1, 1, 5, 1}, true, 1, 5, 5},
		{"two in each, and a rack", []int{2, 2, 2, 2, 5, 2}, true, 0, 0, 0},
		{"one, and most of another", []int{5, 3, 0, 0, 0}, true, 2, 8, 10},
		{"one node", []int{1, 0, 0, 0}, true, 0, 0, 0},
		{"the only rack", []int{5}, false, 0, 0, 0},
	} {
		var l Places
		sure := l.Find(input(fleet(c.fallen...)))
		if sure != c.sure || len(l.domains) != c.places || l.Down != c.down || l.Given != c.all {
			t.Errorf("%s: sure %t, %d places with %d of %d; want %t, %d, %d of %d", c.what, sure, len(l.domains), l.Down,
				l.Given, c.sure, c.places, c.down, c.all)
		}
		if sure != l.Again.IsZero() {
			t.Errorf("%s: it is found out again at %s", c.what, l.Again)
		}
		if l.Tick(now.Add(time.Second)); sure != l.Again.IsZero() {
			t.Errorf("%s: a second later it is found out again at %s", c.what, l.Again)
		}
		if l.Tick(now.Add(time.Hour)); !l.Again.IsZero() {
			t.Errorf("%s: it is found out again at %s, which is long ago", c.what, l.Again)
		}
	}
}

// A fleet that falls is looked at once a second, or when an eighth more has fallen, and again for another target.
func TestAFleetThatFallsIsNotLookedAtWithEachNode(t *testing.T) {
	looks := 0
	find := func(l *Places, count int, at time.Time, target string) bool {
		in := input(fleet(5, 0, 0, 0, 0, 0))
		all := in.Given
		in.Given = func(yield func(Node) bool) { looks++; all(yield) }
		in.Count, in.Now, in.Target = count, at, target
		return l.Find(in)
	}
	var l Places
	for i, c := range []struct {
		count  int
		at     time.Duration
		target string
		looks  int
		sure   bool
	}{
		{16, 0, "v2", 1, true}, {16, 500 * time.Millisecond, "v2", 1, true}, {17, 600 * time.Millisecond, "v2", 1, false},
		{18, 700 * time.Millisecond, "v2", 2, true}, {18, 1700 * time.Millisecond, "v2", 3, true},
		{18, 1800 * time.Millisecond, "v3", 4, true},
		{18, 1900 * time.Millisecond, "v3", 5, true},
	} {
		if i == 6 {
			p := *policy // edited
			policy = &p
		}
		sure := find(&l, c.count, now.Add(c.at), c.target)
		if looks != c.looks || sure != c.sure {
			t.Errorf("%d: all nodes were looked at %d times, sure %t; want %d, %t", i, looks, sure, c.looks, c.sure)
		}
	}
}

// A revision that takes nodes in every rack away costs no look at all nodes for each rack.
func TestFewPlacesAreLookedAt(t *testing.T) {
	nodes, racks := fleet(slices.Repeat([]int{2}, 5*mostHits)...)
	var l Places
	if n := len(l.hits(input(nodes, racks).Fallen)); n != mostHits {
		t.Errorf("%d places are looked at, want %d", n, mostHits)
	}
}
