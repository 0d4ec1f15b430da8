package course

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// recount compares everything that is kept running with what follows from the facts.
func recount(t *rapid.T, c *Course) {
	var sums totals
	steps, places, counts := map[rolloutpolicy.Step]*step{}, map[place]*domain{}, map[Verdict]int32{}
	for _, n := range c.nodes {
		now := c.judge(n)
		was := n.view
		now.reason, was.reason = "", ""
		if now != was {
			t.Fatalf("%s is known as %+v\nand would be judged %+v", n.name, was, now)
		}
		counts[now.verdict]++
		sums.add(&now, 1)
		if steps[n.step] == nil {
			steps[n.step] = &step{}
		}
		steps[n.step].add(&now, 1)
		for i, d := range c.policy.Domains {
			value, has := n.fact.Labels[d.Key]
			if !has {
				continue
			}
			p := place{i, value}
			if places[p] == nil {
				places[p] = &domain{place: p}
			}
			places[p].nodes += one(now.selected)
			places[p].down += one(now.down)
			places[p].staying += one(now.stays)
		}
		s := c.steps[n.step]
		if now.change && (now.free != s.free.Has(n) || now.free == (s.waiting[n.group] != nil && s.waiting[n.group].Has(n))) {
			t.Fatalf("%s may be changed (free %v) and is not where it is looked for", n.name, now.free)
		}
		if now.change && !now.free && s.open.Has(n.group) == n.group.full() {
			t.Fatalf("the group of %s is open: %v, full: %v", n.name, s.open.Has(n.group), n.group.full())
		}
		if step, has := c.fleet.Step(n.name); has != now.selected || has && step != n.step {
			t.Fatalf("%s is in step %v, want %v", n.name, n.step, step)
		}
	}
	if named := c.named; named != "" {
		if c.named = ""; c.failing3() != named {
			t.Fatalf("the target is said to fail on %q, and fails on %q", named, c.failing3())
		}
	}
	if sums != c.totals {
		t.Fatalf("totals %+v, want %+v", c.totals, sums)
	}
	for at, want := range steps {
		have := c.steps[at]
		if want.nodes > 0 && fmt.Sprint(have.nodes, have.done, have.excused, have.soaking, have.failed, have.down, have.busy) !=
			fmt.Sprint(want.nodes, want.done, want.excused, want.soaking, want.failed, want.down, want.busy) {
			t.Fatalf("step %v is %+v, want %+v", at, have, want)
		}
	}
	for p, want := range places {
		have := c.places[p]
		if have.nodes != want.nodes || have.down != want.down || have.staying != want.staying {
			t.Fatalf("domain %v is %+v, want %+v", p, have, want)
		}
	}
	if len(places) != len(c.places) {
		t.Fatalf("%d domains, want %d", len(c.places), len(places))
	}
	maps.DeleteFunc(c.counts, func(_ Verdict, n int32) bool { return n == 0 })
	if !maps.Equal(counts, c.counts) {
		t.Fatalf("verdicts %v, want %v", c.counts, counts)
	}
}

// limits checks, from the facts alone, a change that was let begin.
func (w *world) limits(t *rapid.T, p Permit) {
	c := w.course
	spec, m := w.policy, w.nodes[p.Node]
	back := c.state.target == c.state.stable || c.hasFailed(c.state.target)
	if c.spec.Paused || c.follow != Followed {
		t.Fatalf("%s begins while nothing may", p.Node)
	}
	if m.fault != "" {
		t.Fatalf("%s begins, and is out of order: %s", p.Node, m.fault)
	}
	if p.To == p.From || c.hasFailed(p.To) {
		t.Fatalf("%s goes from %s to %s", p.Node, p.From, p.To)
	}
	step, _ := c.fleet.Step(p.Node)
	if !back && c.state.stable != "" && step.Compare(c.state.open) > 0 && !c.hasFailed(p.From) {
		t.Fatalf("%s begins in step %v, only %v has begun", p.Node, step, c.state.open)
	}
	if p.To != "" && !w.Selects(p.To, p.Node) || p.To == "" && w.Selects(w.target(p.Node), p.Node) {
		t.Fatalf("%s goes from %q to %q, and %s selects it: %v", p.Node, p.From, p.To, w.target(p.Node), w.Selects(w.target(p.Node), p.Node))
	}
	if p.Free {
		return
	}
	w.limitOfStep(t, p, step)
	beside := w.ds.Surge && p.From != "" && p.To != "" // the old pod stays until the new one is available
	for _, d := range spec.Domains {
		value, has := m.labels[d.Key]
		down, all := 0, 0
		for name, o := range w.nodes {
			if v, ok := o.labels[d.Key]; has && ok && v == value && w.course.nodes[name].chosen.any() {
				all++
				first := c.state.stable == "" || !w.Selects(c.state.stable, name)
				if beside && name != p.Node && c.nodes[name].begun != nil && o.daemon.empty() {
					continue // may have begun after it
				}
				untouched := first && o.fault == "" && (c.nodes[name].begun == nil || c.state.stable == "")
				if name != p.Node && o.daemon.empty() && (untouched || w.target(name) != "" && !w.Selects(w.target(name), name)) {
					continue // never had the daemon, or is not to have it any more
				}
				if !o.daemon.Available || !beside && name == p.Node || !w.ds.Surge && c.nodes[name].begun != nil {
					down++
				}
			}
		}
		if has && down > d.MaxUnavailable.Of(all)-one(beside) {
			for _, name := range w.names() {
				verdict, why := c.Verdict(name)
				t.Logf("%s: %s: %s %+v begun %v", name, verdict, why, w.nodes[name].daemon, c.nodes[name].begun)
			}
			t.Fatalf("%s begins, %+v: %d of %d are down at %s=%s", p.Node, p, down, all, d.Key, value)
		}
	}
}

// limitOfStep checks how many daemons of a step go for good at a time.
func (w *world) limitOfStep(t *rapid.T, p Permit, step rolloutpolicy.Step) {
	c := w.course
	all, going := 0, 1
	for name, m := range w.nodes {
		if at, has := c.fleet.Step(name); has && at == step {
			all++
			going += one(name != p.Node && m.daemon.Ending != "" && m.fault == "")
		}
	}
	limit := w.ds.MaxUnavailable.Of(len(w.nodes))
	if own := w.policy.Waves[step.Wave].MaxUnavailable; own != nil && c.state.target != c.state.stable && !c.hasFailed(c.state.target) && c.begun(step) {
		limit = own.Of(all)
	}
	if p.To == "" && going > max(limit, 1) {
		t.Fatalf("%s begins, and %d daemons of step %v go, %d may", p.Node, going, step, limit)
	}
}

func drawPolicy(t *rapid.T) *rolloutpolicy.Policy {
	var text strings.Builder
	if rapid.Bool().Draw(t, "canary") {
		fmt.Fprintf(&text, "- {name: canary, count: %d, soak: %ds, approval: %s}\n", rapid.IntRange(1, 4).Draw(t, "count"),
			rapid.IntRange(0, 20).Draw(t, "soak"), rapid.SampledFrom([]string{"Automatic", "Manual"}).Draw(t, "approval"))
	}
	if rapid.Bool().Draw(t, "zones") {
		fmt.Fprintf(&text, "- {name: zones, each: zone, maxUnavailable: %d}\n", rapid.IntRange(1, 4).Draw(t, "most"))
	}
	waves := "waves:\n" + text.String()
	if text.Len() == 0 {
		waves = ""
	}
	waves += rapid.SampledFrom([]string{"", "domains: [{key: rack, maxUnavailable: 1}]\n", "domains: [{key: rack, maxUnavailable: 50%}, {key: zone, maxUnavailable: 3}]\n"}).Draw(t, "domains")
	waves += rapid.SampledFrom([]string{"", "failure: {then: Rollback, min: 2}\n", "failure: {max: 50%, startDeadline: 5s}\n"}).Draw(t, "failure")
	return policy(fatal{t}, waves)
}

// fatal lets policy fail a rapid test.
type fatal struct{ *rapid.T }

func (fatal) Helper() {}

func TestRandomFleets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		p := drawPolicy(t)
		w.stops = time.Duration(rapid.IntRange(0, 5).Draw(t, "stops")) * time.Second
		w.addFleet(2, rapid.IntRange(1, 3).Draw(t, "racks"), rapid.IntRange(1, 4).Draw(t, "each"), rapid.SampledFrom([]string{"v1", "v1", ""}).Draw(t, "first"))
		ds := daemonSet("v1")
		ds.Surge = rapid.Bool().Draw(t, "surge")
		w.start(p, ds)
		w.check = func(p Permit) { w.limits(t, p) }
		revision := 1
		for range rapid.IntRange(5, 40).Draw(t, "events") {
			if names := w.names(); len(names) > 0 {
				randomEvent(t, w, rapid.SampledFrom(names).Draw(t, "node"), &revision)
			}
			recount(t, w.course)
			w.pass(time.Duration(rapid.IntRange(0, 6).Draw(t, "seconds")) * time.Second)
			recount(t, w.course)
		}
		w.settles(t, revision)
	})
}

// drawRule makes up which nodes a revision selects.
func drawRule(t *rapid.T) func(node string) bool {
	switch rapid.SampledFrom([]string{"all", "all", "zone", "rack", "none"}).Draw(t, "rule") {
	case "zone":
		return func(node string) bool { return node < "z1" }
	case "rack":
		return func(node string) bool { return strings.Contains(node, "-r0-") }
	case "none":
		return func(string) bool { return false }
	}
	return nil
}

func randomEvent(t *rapid.T, w *world, name string, revision *int) {
	c := w.course
	switch rapid.IntRange(0, 11).Draw(t, "event") {
	case 0, 1:
		*revision++
		w.rules[fmt.Sprint("v", *revision)] = drawRule(t)
		w.update(fmt.Sprint("v", *revision))
	case 2:
		w.fault(name, rapid.SampledFrom([]string{"node does not answer", "", "disk pressure"}).Draw(t, "fault"), rapid.Bool().Draw(t, "silent"))
	case 3:
		w.removeNode(name)
	case 4:
		w.addNode(fmt.Sprintf("new-%d", rapid.IntRange(0, 5).Draw(t, "new")), map[string]string{"zone": "z1"}, "")
	case 5:
		c.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: rapid.Bool().Draw(t, "paused"), Approved: &v1alpha1.StepApproval{Revision: c.state.target, Step: "canary"}})
	case 6:
		bad := fmt.Sprint("v", *revision)
		w.bad = func(r, n string) string {
			if r == bad && n < "z1" {
				return "it restarts"
			}
			return ""
		}
	case 7:
		c.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: c.state.target, Count: int32(*revision)}})
	case 8:
		m := w.nodes[name]
		m.daemon, m.out = Daemon{}, rapid.Bool().Draw(t, "out")
		m.ready = time.Time{}
		c.SetDaemon(name, m.daemon)
	case 9:
		c.SetPolicy(nil, rapid.SampledFrom([]Following{Followed, Lost, Gone}).Draw(t, "following"), "for a test")
	case 10:
		w.policy = drawPolicy(t)
		c.SetPolicy(w.policy, Followed, "")
	case 11: // the controller starts anew, and knows what the status says
		w.again()
	}
}

// again makes a new course from the facts and the old one's status.
func (w *world) again() { w.againWith(w.course.policy, w.course.follow, w.course.why) }

// againWith has a new process go on, which finds that policy.
func (w *world) againWith(p *rolloutpolicy.Policy, f Following, why string) {
	w.againFrom(w.course.Status(), p, f, why)
}

// crash has a new process go on with what was stored, and no more.
func (w *world) crash() { w.againFrom(w.stored, w.course.policy, w.course.follow, w.course.why) }

func (w *world) againFrom(status v1alpha1.DaemonSetRolloutStatus, p *rolloutpolicy.Policy, f Following, why string) {
	old := w.course
	w.course = New(w)
	w.course.Tick(w.now)
	w.course.SetPolicy(p, f, why)
	w.course.SetSpec(old.spec)
	w.course.SetDaemonSet(w.ds)
	for _, name := range w.names() {
		w.tell(name)
	}
	w.course.SpecSeen()
	w.course.Start(&status)
}

// settles checks liveness: when everything is well again, and everybody agrees, the
// next revision reaches every node.
func (w *world) settles(t *rapid.T, revision int) {
	c := w.course
	w.bad = func(string, string) string { return "" }
	for _, name := range w.names() {
		w.nodes[name].out = false
		w.fault(name, "", false)
	}
	final := fmt.Sprint("v", revision+1)
	c.SetPolicy(nil, Followed, "")
	c.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: final, Step: v1alpha1.AllSteps}})
	w.rules[final] = drawRule(t)
	w.update(final)
	w.pass(10 * time.Minute)
	recount(t, c)
	want, others := 0, 0
	for _, name := range w.names() {
		want += one(w.Selects(final, name))
		others += one(!w.nodes[name].daemon.empty() && w.nodes[name].daemon.Revision != final)
	}
	if phase, message := c.Phase(); phase != v1alpha1.PhaseComplete || w.on(final) != want || others > 0 {
		for _, name := range w.names() {
			verdict, why := c.Verdict(name)
			t.Logf("%s: %s: %s %+v", name, verdict, why, w.nodes[name].daemon)
		}
		t.Fatalf("%s: %s; %d of %d nodes have %s, %d another", phase, message, w.on(final), want, final, others)
	}
}
