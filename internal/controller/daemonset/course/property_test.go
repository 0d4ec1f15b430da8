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
	var all sums
	steps, places, counts := map[rolloutpolicy.Step]*sums{}, map[place]*domain{}, map[Verdict]int32{}
	aimed := c.aim
	c.takeAim()
	if aimed != c.aim {
		t.Fatalf("the course takes aim at %+v, want %+v", aimed, c.aim)
	}
	for _, n := range c.nodes {
		now := c.judge(n)
		was := n.view
		now.reason, was.reason = "", ""
		now.since = was.since
		if now != was {
			t.Fatalf("%s is known as %+v\nand would be judged %+v", n.name, was, now)
		}
		counts[now.state.Verdict()]++
		all.add(now.counts, 1)
		if steps[n.step] == nil {
			steps[n.step] = &sums{}
		}
		steps[n.step].add(now.counts, 1)
		for i, d := range c.policy.Domains {
			value, has := n.fact.labels()[d.Key]
			if !has {
				continue
			}
			p := place{i, value}
			if places[p] == nil {
				places[p] = &domain{place: p}
			}
			places[p].nodes += one(now.has(Selected))
			places[p].down += one(now.has(Down))
			places[p].staying += one(now.has(Stays))
		}
		s := c.steps[n.step]
		change := now.has(Pending) || now.has(Held)
		var w *waiting
		if change {
			w = s.waiting[n.group]
		}
		if change && (now.free != s.free.Has(n) || now.free == (w != nil && w.nodes.Has(n) && s.asking.Has(n))) {
			t.Fatalf("%s may be changed (free %v) and is not where it is looked for", n.name, now.free)
		} else if change && !now.free && (!w.line.groups.Has(n.group) || s.open.Has(w.line) == w.line.domain.full) {
			t.Fatalf("the group of %s is in no line, or a line of a full domain is open", n.name)
		}
		if blocked := now.has(Ours) && now.state.Verdict() != Changing; blocked != c.blocked.Has(n) {
			t.Fatalf("%s blocks: %v, and is known to: %v", n.name, blocked, c.blocked.Has(n))
		}
		if step, has := c.fleet.Step(n.name); has != now.has(Selected) || has && step != n.step {
			t.Fatalf("%s is in step %v, want %v", n.name, n.step, step)
		}
	}
	if named := c.named; named != "" {
		if c.named = ""; c.failing3() != named {
			t.Fatalf("the target is said to fail on %q, and fails on %q", named, c.failing3())
		}
	}
	if all != c.totals {
		t.Fatalf("totals %+v, want %+v", c.totals, all)
	}
	for at, want := range steps {
		have := c.steps[at]
		if have == nil && want[Selected] == 0 {
			continue
		}
		if first, _ := have.first(); first != firstOf(have) {
			t.Fatalf("the first of step %v is %v, want %v", at, first, firstOf(have))
		}
		if want[Selected] > 0 && have.sums != *want {
			t.Fatalf("step %v is %+v, want %+v", at, have.sums, want)
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
	back := c.state.target == c.state.stable || c.targetFailed
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
	returns := p.Free && w.target(p.Node) == c.state.stable // nothing is taken away by it
	if !back && (c.state.stable != "" || c.state.steps) && step.Compare(c.state.open) > 0 && !c.hasFailed(p.From) && !returns {
		t.Fatalf("%+v begins in step %v, only %v has begun", p, step, c.state.open)
	}
	if p.To != "" && !w.Selects(p.To, p.Node) || p.To == "" && w.Selects(w.target(p.Node), p.Node) {
		t.Fatalf("%s goes from %q to %q, and %s selects it: %v", p.Node, p.From, p.To, w.target(p.Node), w.Selects(w.target(p.Node), p.Node))
	}
	if !w.Readable(w.target(p.Node)) {
		t.Fatalf("%s goes from %q to %q, which cannot be read", p.Node, p.From, p.To)
	}
	if p.Free {
		return
	}
	w.limitOfStep(t, p, step)
	w.limitOfOurs(t, p, step)
	beside := w.ds.Surge && p.From != "" && p.To != "" // the old pod stays until the new one is available
	for _, d := range spec.Domains {
		value, has := m.labels[d.Key]
		down, all := 0, 0
		for name, o := range w.nodes {
			if v, ok := o.labels[d.Key]; has && ok && v == value && w.course.nodes[name].chosen.any() {
				all++
				first := c.state.stable == "" || !w.Selects(c.state.stable, name)
				if beside && name != p.Node && c.nodes[name].change.begun != nil && o.daemon.empty() {
					continue // may have begun after it
				}
				untouched := first && o.fault == "" && (c.nodes[name].change.begun == nil || c.state.stable == "")
				if name != p.Node && o.daemon.empty() && (untouched || w.target(name) != "" && !w.Selects(w.target(name), name)) {
					continue // never had the daemon, or is not to have it any more
				}
				if !o.daemon.Available || !beside && name == p.Node || !w.ds.Surge && c.nodes[name].change.begun != nil {
					down++
				}
			}
		}
		if has && down > d.MaxUnavailable.Of(all)-one(beside) {
			for _, name := range w.names() {
				verdict, why := c.Verdict(name)
				t.Logf("%s: %s: %s %+v begun %v", name, verdict, why, w.nodes[name].daemon, c.nodes[name].change.begun)
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
	if own := w.policy.Waves[step.Wave].MaxUnavailable; own != nil && c.state.target != c.state.stable && !c.targetFailed && c.begun(step) {
		limit = own.Of(all)
	}
	if p.To == "" && going > max(limit, 1) {
		t.Fatalf("%s begins, and %d daemons of step %v go, %d may", p.Node, going, step, limit)
	}
}

// limitOfOurs checks how many daemons are not available by the rollout's doing, in its present
// direction. Of nodes that are silent nobody knows it.
func (w *world) limitOfOurs(t *rapid.T, p Permit, step rolloutpolicy.Step) {
	c := w.course
	if p.From == "" || w.ds.Surge {
		return
	}
	limit, own := w.ds.MaxUnavailable.Of(len(w.nodes)), false
	if most := w.policy.Waves[step.Wave].MaxUnavailable; most != nil && !c.back && c.begun(step) {
		size := 0
		for name := range w.nodes {
			at, has := c.fleet.Step(name)
			size += one(has && at == step)
		}
		limit, own = most.Of(size), true
	}
	ours := []string{p.Node}
	for name := range w.taken {
		m, at := w.nodes[name], rolloutpolicy.Step{}
		if at, _ = c.fleet.Step(name); m == nil || m.silent || name == p.Node || own && at != step || !c.nodes[name].chosen.any() {
			continue
		}
		if !m.daemon.Available && !(m.daemon.empty() && !w.Selects(w.target(name), name)) {
			ours = append(ours, name)
		}
	}
	if len(ours) > max(limit, 1) {
		for _, name := range w.names() {
			n := c.nodes[name]
			t.Logf("%s: %+v %d %+v taken %v", name, w.nodes[name].daemon, n.view.state, n.change, w.taken[name])
		}
		t.Fatalf("%+v begins; that makes %v unavailable by our doing, and %d may be", p, ours, limit)
	}
}

// noteTaken keeps which nodes lost an available daemon to the rollout, and have none since.
func (w *world) noteTaken(p *Permit) {
	c := w.course
	if way := fmt.Sprint(c.back, c.state.target, c.state.since); way != w.way {
		if w.way = way; c.back {
			clear(w.taken)
		}
	}
	for name := range w.taken {
		m := w.nodes[name]
		empty := m != nil && m.daemon.empty()
		// Where every revision before the target has failed, there is nothing that such a node could be given.
		nothing := empty && c.changing && w.target(name) == ""
		if m == nil || m.daemon.Available && c.nodes[name].change.begun == nil || nothing || empty && !w.Selects(w.target(name), name) {
			delete(w.taken, name)
		}
	}
	if p != nil && p.From != "" && !p.Free {
		w.taken[p.Node] = true
	}
}

func drawPolicy(t *rapid.T) *rolloutpolicy.Policy {
	var text strings.Builder
	if rapid.Bool().Draw(t, "canary") {
		fmt.Fprintf(&text, "- {name: canary, count: %d, soak: %ds, approval: %s}\n", rapid.IntRange(1, 4).Draw(t, "count"),
			rapid.IntRange(0, 20).Draw(t, "soak"), rapid.SampledFrom([]string{"Automatic", "Manual"}).Draw(t, "approval"))
	}
	if rapid.Bool().Draw(t, "ramp") {
		fmt.Fprintf(&text, "- {name: grows, nodes: {matchLabels: {zone: z0}}, ramp: {from: %d}, soak: %ds}\n", rapid.IntRange(1, 2).Draw(t, "from"),
			rapid.IntRange(0, 10).Draw(t, "rampSoak"))
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
		w.check = func(p Permit) {
			w.noteTaken(nil)
			w.limits(t, p)
			w.noteTaken(&p)
		}
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
	switch rapid.IntRange(0, 13).Draw(t, "event") {
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
	case 12: // the way back does not work either
		stable := c.state.stable
		w.bad = func(r, n string) string {
			if r == stable && n < "z1" {
				return "its image is gone"
			}
			return ""
		}
	case 13:
		w.unreadable[c.state.stable] = c.state.stable != w.ds.Newest && rapid.Bool().Draw(t, "unreadable")
		w.tellRules()
	case 7:
		c.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: c.state.target, Count: int32(*revision)}})
	case 8:
		m := w.nodes[name]
		m.daemon, m.out = Daemon{}, rapid.Bool().Draw(t, "out")
		m.ready = time.Time{}
		w.tell(name)
		w.noteTaken(nil) // it may just have become one that is to have no daemon
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
	w.course = New()
	w.course.Tick(w.now)
	w.course.SetPolicy(p, f, why)
	w.course.SetSpec(old.spec)
	w.tellRules()
	for _, name := range w.names() {
		w.tell(name)
	}
	w.course.ExpectRecovery()
	w.course.Start(&status)
}

// settles checks liveness: when everything is well again, and everybody agrees, the
// next revision reaches every node.
func (w *world) settles(t *rapid.T, revision int) {
	c := w.course
	w.bad = func(string, string) string { return "" }
	clear(w.unreadable)
	w.tellRules()
	dead := map[string]bool{} // these never come back, and hold up nobody but their rack
	if names := w.names(); len(names) >= 6 && rapid.Bool().Draw(t, "dead") {
		dead[rapid.SampledFrom(names).Draw(t, "which")] = true
	}
	for _, name := range w.names() {
		w.nodes[name].out = false
		if dead[name] {
			w.fault(name, "the node does not answer", true)
			continue
		}
		w.fault(name, "", false)
	}
	final := fmt.Sprint("v", revision+1)
	c.SetPolicy(nil, Followed, "")
	c.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: final, Step: v1alpha1.AllSteps}})
	w.rules[final] = drawRule(t)
	w.update(final)
	w.pass(10 * time.Minute)
	recount(t, c)
	var wrong []string
	for _, name := range w.names() {
		has, wants := w.nodes[name].daemon, w.Selects(final, name)
		ok := wants && has.Revision == final && has.Available || !wants && has.empty()
		if !ok && !dead[name] && !w.besideDead(dead, name) {
			wrong = append(wrong, name)
		}
	}
	if c.faulty() {
		return // of so few nodes one is too many
	}
	if phase, message := c.Phase(); len(wrong) > 0 || len(dead) == 0 && phase != v1alpha1.PhaseComplete {
		for _, name := range w.names() {
			verdict, why := c.Verdict(name)
			t.Logf("%s: %s: %s %+v", name, verdict, why, w.nodes[name].daemon)
		}
		t.Fatalf("%s: %s; %v do not have what %s wants; %v are dead", phase, message, wrong, final, dead)
	}
}

// besideDead reports whether the node shares a domain with a dead one, and may have to wait for it.
func (w *world) besideDead(dead map[string]bool, name string) bool {
	for _, d := range w.policy.Domains {
		value, has := w.nodes[name].labels[d.Key]
		for o := range dead {
			if other, also := w.nodes[o].labels[d.Key]; has && also && value == other {
				return true
			}
		}
	}
	return false
}

// firstOf is the first node of a step whose domains let it go, by a look at all.
func firstOf(s *step) (first *node) {
	for g, w := range s.waiting {
		if !g.holder().full && (first == nil || g.key < first.group.key) {
			first, _ = w.nodes.Min()
		}
	}
	return first
}
