package plan

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// drawStartup makes up a NodeStartup of up to four groups.
func drawStartup(t *rapid.T) *v1alpha1.NodeStartup {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec.Gate = rapid.SampledFrom([]v1alpha1.StartupGate{v1alpha1.GateJoin, v1alpha1.GateNone}).Draw(t, "gate")
	for i := range rapid.IntRange(1, 4).Draw(t, "groups") {
		var g v1alpha1.StartupGroup
		for k := range rapid.IntRange(1, 3).Draw(t, "members") {
			g.DaemonSets = append(g.DaemonSets, v1alpha1.StartupDaemonSet{Namespace: "n", Name: fmt.Sprintf("d%d-%d", i, k)})
		}
		g.Then = v1alpha1.ThenWait
		if rapid.Bool().Draw(t, "timeout") {
			g.Timeout = "10s"
			if rapid.Bool().Draw(t, "open") {
				g.Then = v1alpha1.ThenOpen
			}
		}
		s.Spec.Groups = append(s.Spec.Groups, g)
	}
	if errs := nodestartup.Validate(s); len(errs) > 0 {
		t.Fatalf("the startup is not valid: %v", errs)
	}
	return s
}

// world is a node with its daemons, as they are at a moment.
type world struct {
	s       *v1alpha1.NodeStartup
	daemons map[types.NamespacedName]Daemon
	gate    *corev1.Taint
	now     time.Time
}

func newWorld(t *rapid.T) *world {
	s := drawStartup(t)
	w := &world{s: s, daemons: map[types.NamespacedName]Daemon{}, now: start}
	for _, g := range s.Spec.Groups {
		for _, d := range g.DaemonSets {
			w.daemons[nodestartup.NameOf(d)] = Daemon{}
		}
	}
	w.gate = nodestartup.Gate(nodestartup.Place{Startup: s.Name, Group: 1}, s.Spec.Gate, start)
	return w
}

func (w *world) facts(name types.NamespacedName) Daemon { return w.daemons[name] }

func (w *world) available(name types.NamespacedName) bool {
	d := w.daemons[name]
	return d.Elsewhere || !d.From.IsZero() && !d.From.After(w.now)
}

func (w *world) all(g *v1alpha1.StartupGroup) bool {
	for _, d := range g.DaemonSets {
		if !w.available(nodestartup.NameOf(d)) {
			return false
		}
	}
	return true
}

// oracle says at which group the node is to be, by the words of the API, and since when: 0 for open. It is slow and knows
// no taint.
func (w *world) oracle(at int, began time.Time) (int, time.Time) {
	groups := w.s.Spec.Groups
	for {
		g := &groups[at-1]
		over := g.Then == v1alpha1.ThenOpen && !w.now.Before(began.Add(10*time.Second))
		free := w.all(g) || over
		for i := range at - 1 {
			free = free && (groups[i].Then == v1alpha1.ThenOpen || w.all(&groups[i]))
		}
		switch {
		case !free:
			return at, began
		case at == len(groups):
			return 0, began
		}
		at, began = at+1, w.now.Add(time.Second-1).Truncate(time.Second)
	}
}

// A node goes on exactly when the words of the API say so, never back, and is looked at again when time alone matters.
func TestDecideAgainstAnOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		names := slices.SortedFunc(maps.Keys(w.daemons), func(a, b types.NamespacedName) int {
			return cmpText(a.String(), b.String())
		})
		at, began := 1, start
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "daemon")
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				w.daemons[name] = Daemon{From: w.now.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "from")) * time.Second)}
			case 1:
				w.daemons[name] = Daemon{Missing: rapid.Bool().Draw(t, "missing")}
			case 2:
				w.daemons[name] = Daemon{Elsewhere: true}
			case 3, 4:
				for _, d := range w.s.Spec.Groups[at-1].DaemonSets {
					w.daemons[nodestartup.NameOf(d)] = Daemon{From: w.now}
				}
			default:
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 8000).Draw(t, "ms")) * time.Millisecond)
			}
			before := at
			at, began = w.oracle(at, began)
			d := Decide(w.s, w.gate, w.facts, w.now)
			w.check(t, &d, before, at)
			if d.Gate == nil {
				return
			}
			if !d.Gate.TimeAdded.Time.Equal(began) {
				t.Fatalf("group %d began at %v, and the gate says %v", at, began, d.Gate.TimeAdded)
			}
			w.gate = d.Gate
		}
	})
}

func cmpText(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

func (w *world) check(t *rapid.T, d *Decision, before, want int) {
	got := 0
	if d.Gate != nil {
		place, ok := nodestartup.PlaceOf(d.Gate.Value)
		if !ok || place.Startup != w.s.Name || place.Group < before {
			t.Fatalf("from group %d the gate becomes %q", before, d.Gate.Value)
		}
		got = place.Group
	}
	if got != want || d.Changed != (got != before) {
		t.Fatalf("at %v, group %d, it goes to %d (changed: %v), want %d", w.now, before, got, d.Changed, want)
	}
	if got > 0 && len(d.Waits) == 0 {
		t.Fatalf("at group %d it waits for nothing", got)
	}
	for _, wait := range d.Waits {
		if w.available(wait.DaemonSet) {
			t.Fatalf("it waits for %s, which is available", wait.DaemonSet)
		}
	}
	if d.Gate == nil {
		return
	}
	// Nothing happens by time alone before it says.
	until := w.now.Add(time.Hour)
	if !d.Again.IsZero() {
		until = d.Again.Add(-time.Millisecond)
	}
	sooner := Decide(w.s, d.Gate, w.facts, until)
	if sooner.Changed || sooner.Late != d.Late {
		t.Fatalf("at %v it says to look again at %v, and before that, at %v, it is %+v", w.now, d.Again, until, sooner)
	}
}

// Liveness: a node whose daemons are all available opens at once, wherever it is; and one that may be gone on without
// does so when the time is over.
func TestAvailableDaemonsOpenTheNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		at := rapid.IntRange(1, len(w.s.Spec.Groups)+2).Draw(t, "group") // the spec may have got fewer
		w.gate = nodestartup.Gate(nodestartup.Place{Startup: w.s.Name, Group: at}, w.s.Spec.Gate, start)
		for name := range w.daemons {
			w.daemons[name] = Daemon{From: start}
		}
		if d := Decide(w.s, w.gate, w.facts, start); d.Gate != nil || !d.Changed || d.Since != start {
			t.Fatalf("at group %d of %d it gets %+v", at, len(w.s.Spec.Groups), d)
		}
		for i := range w.s.Spec.Groups {
			w.s.Spec.Groups[i].Timeout, w.s.Spec.Groups[i].Then = "10s", v1alpha1.ThenOpen
		}
		for name := range w.daemons {
			w.daemons[name] = Daemon{Missing: true}
		}
		for range len(w.s.Spec.Groups) + 1 {
			d := Decide(w.s, w.gate, w.facts, w.now)
			if d.Gate == nil {
				return
			}
			w.gate, w.now = d.Gate, d.Again
		}
		t.Fatalf("at %v it is still at %s", w.now, w.gate.Value)
	})
}

// A gate whose NodeStartup is gone goes, and so does one that nobody can read.
func TestGateOfNobodyGoes(t *testing.T) {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	gate := nodestartup.Gate(nodestartup.Place{Startup: "s", Group: 1}, v1alpha1.GateJoin, start)
	for _, of := range []*v1alpha1.NodeStartup{nil, s} {
		if d := Decide(of, gate, nil, start); d.Gate != nil || !d.Changed {
			t.Errorf("under %v it gets %+v", of, d)
		}
	}
	if d := Decide(s, &corev1.Taint{Key: nodestartup.TaintKey, Value: "other"}, nil, start); d.Gate != nil || !d.Changed {
		t.Errorf("with a value that says nothing it gets %+v", d)
	}
}

// A gate that is opened a little stays so, whatever the NodeStartup says later.
func TestNoNodeIsClosedLater(t *testing.T) {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec.Groups = []v1alpha1.StartupGroup{{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "n", Name: "d"}}}}
	never := func(types.NamespacedName) Daemon { return Daemon{} }
	for _, c := range []struct {
		was, is v1alpha1.StartupGate
		want    corev1.TaintEffect
	}{
		{v1alpha1.GateNone, v1alpha1.GateJoin, corev1.TaintEffectPreferNoSchedule},
		{v1alpha1.GateJoin, v1alpha1.GateNone, corev1.TaintEffectPreferNoSchedule},
		{v1alpha1.GateJoin, v1alpha1.GateJoin, corev1.TaintEffectNoSchedule},
	} {
		s.Spec.Gate = c.is
		d := Decide(s, nodestartup.Gate(nodestartup.Place{Startup: "s", Group: 1}, c.was, start), never, start)
		if d.Gate == nil || d.Gate.Effect != c.want {
			t.Errorf("from %s to %s: %+v", c.was, c.is, d.Gate)
		}
	}
}

// A timeout goes on without its own group only: a daemon of a group before, which must be there, is waited for.
func TestTimeoutIsOfItsGroupOnly(t *testing.T) {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	for _, name := range []string{"cni", "logs"} {
		s.Spec.Groups = append(s.Spec.Groups, v1alpha1.StartupGroup{
			DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "n", Name: name}}})
	}
	s.Spec.Groups[1].Timeout, s.Spec.Groups[1].Then = "10s", v1alpha1.ThenOpen
	cni := Daemon{}
	facts := func(of types.NamespacedName) Daemon {
		if of.Name == "cni" {
			return cni
		}
		return Daemon{}
	}
	gate := nodestartup.Gate(nodestartup.Place{Startup: "s", Group: 2}, v1alpha1.GateJoin, start)
	over := start.Add(time.Minute)
	if d := Decide(s, gate, facts, over); d.Changed || len(d.Waits) != 2 || len(d.Without) != 0 {
		t.Errorf("while cni is not available the node gets %+v", d)
	}
	cni.From = start
	d := Decide(s, gate, facts, over)
	if d.Gate != nil || !d.Changed || len(d.Without) != 1 || d.Without[0].Name != "logs" {
		t.Errorf("once cni is available the node gets %+v", d)
	}
}

// A clock that was set back has no group take a day more: one that begins in time to come begins now, which is written.
// Clocks of servers that differ a little change nothing.
func TestAGroupThatBeginsInTimeToCome(t *testing.T) {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec.Groups = []v1alpha1.StartupGroup{{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "n", Name: "d"}},
		Timeout: "10s", Then: v1alpha1.ThenOpen}}
	never := func(types.NamespacedName) Daemon { return Daemon{} }
	gate := nodestartup.Gate(nodestartup.Place{Startup: "s", Group: 1}, v1alpha1.GateJoin, start.Add(2*time.Second))
	if d := Decide(s, gate, never, start); d.Changed || !d.Again.Equal(start.Add(12*time.Second)) {
		t.Errorf("two seconds ahead it gets %+v", d)
	}
	gate = nodestartup.Gate(nodestartup.Place{Startup: "s", Group: 1}, v1alpha1.GateJoin, start.Add(24*time.Hour))
	d := Decide(s, gate, never, start)
	if !d.Changed || d.Gate == nil || !d.Gate.TimeAdded.Time.Equal(start) || !d.Again.Equal(start.Add(10*time.Second)) {
		t.Fatalf("a day ahead it gets %+v", d)
	}
	if d = Decide(s, d.Gate, never, start.Add(10*time.Second)); d.Gate != nil || len(d.Without) != 1 {
		t.Errorf("after its timeout it gets %+v", d)
	}
}
