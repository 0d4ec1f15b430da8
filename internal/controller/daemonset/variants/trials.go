package variants

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Trial is one pod that the API is asked to try before any node is given a revision: that of a variant on a node.
type Trial struct {
	DaemonSet         *appsv1.DaemonSet
	Revision, Variant string
	Node              string
}

// Verdict is what became of a trial.
type Verdict struct {
	Trial *Trial
	// Refused is what the API says against the pod; "" if it takes it, or if it cannot be asked to try.
	Refused string
	// Unsure tells that it has not answered.
	Unsure bool
}

// mostTrials is how often an API is asked that does not answer, before nodes are changed without its word.
const mostTrials = 5

// triedAgain is when a pod is tried again that the API has refused: what it goes by may be another then.
const triedAgain = time.Minute

// trial is what is known of one.
type trial struct {
	busy, done bool
	refused    string
	node       string
	failures   int
	again      time.Time
}

// trials are those of the newest variants on the newest template.
type trials struct {
	revision string
	of       map[string]*trial // by variant
	// nodes are examples, as of what was seen then. They are not looked for before next; due is that time if somebody
	// waits for it.
	nodes map[string]string
	seen  [2]int
	due   time.Time
	next  time.Time
}

// open reports whether something is still to be tried.
func (t *trials) open() bool {
	for _, one := range t.of {
		if !one.over() {
			return true
		}
	}
	return false
}

func (t *trial) over() bool { return t.done && t.refused == "" }

// looksFor is how long it takes until examples are looked for once more. Nodes and pods change all the time, and a
// variant may have no node for ever: so many nodes are looked at in a second on average.
func looksFor(nodes int) time.Duration { return time.Second + time.Duration(nodes)*time.Millisecond }

// Trials returns the pods that are to be tried now, each once: it is under way until its verdict is told.
func (b *Book) Trials() (out []*Trial) {
	for _, uid := range b.setsThat(func(s *set) bool { return s.trials != nil && s.trials.open() }) {
		s := b.sets[uid]
		nodes := b.examples(uid, s)
		for _, name := range slices.Sorted(maps.Keys(s.trials.of)) {
			t := s.trials.of[name]
			if t.busy || t.over() || t.again.After(b.now) {
				continue
			}
			if node := nodes[name]; node != "" {
				t.busy, t.node = true, node
				out = append(out, &Trial{s.object, s.trials.revision, name, node})
			}
		}
	}
	return out
}

// examples are nodes whose daemon would be one of each variant, for those that there are: nothing is taken down
// elsewhere. They are looked for again when nodes are others, after a while.
func (b *Book) examples(uid types.UID, s *set) map[string]string {
	seen := [2]int{b.nodesVersion, len(s.pods)}
	switch t := s.trials; {
	case t.nodes == nil:
	case t.seen == seen, !t.open():
		return t.nodes
	case t.next.After(b.now):
		t.due = t.next
		return t.nodes
	}
	s.trials.next, s.trials.due = b.now.Add(looksFor(len(s.pods))), time.Time{}
	s.trials.seen, s.trials.nodes = seen, map[string]string{}
	m := b.moldsOf(uid, s, s.trials.revision)
	if m == nil {
		return s.trials.nodes
	}
	for _, node := range slices.Sorted(maps.Keys(s.pods)) {
		n := b.nodes[node]
		if n == nil {
			continue
		}
		name := m.Chosen(n)
		if name == "" || s.trials.nodes[name] != "" {
			continue
		}
		if o := m.Of(n); o.Err == nil && !o.Plain {
			s.trials.nodes[name] = node
		}
	}
	return s.trials.nodes
}

// try has the newest variants be tried on the template that was told. It says what the API says against them; tried is
// false while it has not been asked about all that a node would get.
func (b *Book) try(uid types.UID, s *set, info *fact.DaemonSet) (tried bool, refused string) {
	revision := content.WithVariants(info.Revision, s.newest.ID)
	if s.trials == nil || s.trials.revision != revision {
		s.trials = &trials{revision: revision, of: map[string]*trial{}}
		for i := range s.newest.Variants {
			s.trials.of[s.newest.Variants[i].Name] = &trial{}
		}
	}
	tried = true
	nodes := b.examples(uid, s)
	for _, name := range slices.Sorted(maps.Keys(s.trials.of)) {
		switch t := s.trials.of[name]; {
		case t.refused != "" && refused == "":
			refused = fmt.Sprintf("DaemonSetVariant %s makes a pod that the API refuses, as tried for node %s: %s",
				name, t.node, t.refused)
		case !t.done && nodes[name] != "":
			tried = false
		}
	}
	return tried, refused
}

// may reports whether the newest variants may be given to nodes, by what the API says of their pods. If not, those that
// the DaemonSet had stay; with the same ones on another template it is held. Where a policy is followed another
// template fails at its canary instead, and all other nodes keep their daemon, or get another one like it.
func (b *Book) may(uid types.UID, s *set, info *fact.DaemonSet) bool {
	s.objects = ""
	if !b.Tries || len(s.pods) == 0 {
		s.trials = nil
		return true
	}
	tried, refused := b.try(uid, s, info)
	if refused == "" && tried {
		return true
	}
	if refused != "" {
		s.objects = "nothing changes: " + refused
	}
	given := s.given
	if given == "" { // this controller has just begun
		given = s.found(b.Objects)
	}
	if variantsOf(given) != s.newest.ID {
		return false
	}
	info.Held = info.Held || without(given) != info.Revision && !s.followed
	return true
}

// times are when trials are due.
func (t *trials) times() (out []time.Time) {
	if t == nil {
		return nil
	}
	for _, one := range t.of {
		if !one.busy && !one.over() {
			out = append(out, one.again)
		}
	}
	return append(out, t.due)
}

// TellVerdict takes in what became of a trial.
func (b *Book) TellVerdict(v Verdict) {
	uid := v.Trial.DaemonSet.UID
	s := b.sets[uid]
	if s == nil || s.trials == nil || s.trials.revision != v.Trial.Revision || s.trials.of[v.Trial.Variant] == nil {
		return
	}
	t := s.trials.of[v.Trial.Variant]
	t.busy = false
	if v.Unsure {
		t.failures++
		t.again = b.now.Add(time.Second << t.failures)
		t.done = t.done || t.failures >= mostTrials
	} else {
		t.done, t.refused, t.failures, t.again = true, v.Refused, 0, b.now.Add(triedAgain)
	}
	b.dirty[uid], b.moved = true, true
}
