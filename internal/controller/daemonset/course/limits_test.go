package course

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

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
	if p.To == p.From || c.state.HasFailed(p.To) {
		t.Fatalf("%s goes from %s to %s", p.Node, p.From, p.To)
	}
	step, _ := c.fleet.Step(p.Node)
	if open, _ := w.policy.Windows.Open(w.clock()); !open && !back && step.Compare(c.state.open) <= 0 {
		t.Fatalf("%+v begins outside of windows", p)
	}
	returns := p.Free && w.target(p.Node) == c.state.stable // nothing is taken away by it
	if !back && (c.state.stable != "" || c.state.steps) && step.Compare(c.state.open) > 0 && !c.state.HasFailed(p.From) &&
		!returns {
		t.Fatalf("%+v begins in step %v, only %v has begun", p, step, c.state.open)
	}
	if p.To != "" && !w.Selects(p.To, p.Node) || p.To == "" && w.Selects(w.target(p.Node), p.Node) {
		t.Fatalf("%s goes from %q to %q, and %s selects it: %v", p.Node, p.From, p.To, w.target(p.Node),
			w.Selects(w.target(p.Node), p.Node))
	}
	if !w.Readable(w.target(p.Node)) {
		t.Fatalf("%s goes from %q to %q, which cannot be read", p.Node, p.From, p.To)
	}
	if p.Free {
		if m.daemon.Comes.After(w.clock()) {
			t.Fatalf("%+v takes a pod that is ready without asking the limits: %+v", p, m.daemon)
		}
		return
	}
	w.fetchedBefore(t, p, step)
	w.limitOfStep(t, p, step)
	w.limitOfOurs(t, p, step)
	beside := w.ds.Surge && p.From != "" && p.To != "" // the old pod stays until the new one is available
	for _, d := range spec.Domains {
		value, has := m.labels[d.Key]
		down, all := 0, 0
		for name, o := range w.nodes {
			if v, ok := o.labels[d.Key]; has && ok && v == value && w.course.nodes[name].chosen.Any() {
				all++
				first := c.state.stable == "" || !w.Selects(c.state.stable, name)
				if beside && name != p.Node && c.nodes[name].change.begun != nil && o.daemon.Empty() {
					continue // may have begun after it
				}
				untouched := first && o.fault == "" && (c.nodes[name].change.begun == nil || c.state.stable == "")
				if name != p.Node && o.daemon.Empty() &&
					(untouched || w.target(name) != "" && !w.Selects(w.target(name), name)) {
					continue // never had the daemon, or is not to have it any more
				}
				if !o.daemon.Available || !beside && name == p.Node || !w.ds.Surge &&
					c.nodes[name].change.begun != nil {
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

// limitOfStep checks how many daemons of a step, which were available, go at a time where one goes for good.
func (w *world) limitOfStep(t *rapid.T, p Permit, step rolloutpolicy.Step) {
	c := w.course
	all, going := 0, 1
	for name, m := range w.nodes {
		if at, has := c.fleet.Step(name); has && at == step {
			all++
			going += one(name != p.Node && m.daemon.Was == standing.WasAvailable && m.fault == "" && !w.lingers(m))
		}
	}
	limit := w.ds.MaxUnavailable.Of(len(w.nodes))
	if own := w.policy.Waves[step.Wave].MaxUnavailable; own != nil && c.state.target != c.state.stable &&
		!c.targetFailed && c.begun(step) {
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
		if at, _ = c.fleet.Step(name); m == nil || m.silent || name == p.Node || w.lingers(m) || own && at != step ||
			!c.nodes[name].chosen.Any() {
			continue
		}
		_, begun := w.begun[name]
		if begun || !m.daemon.Available && !(m.daemon.Empty() && !w.Selects(w.target(name), name)) {
			ours = append(ours, name)
		}
	}
	if len(ours) > max(limit, 1) {
		for _, name := range w.names() {
			n := c.nodes[name]
			t.Logf("%s: %+v %d %+v taken %v", name, w.nodes[name].daemon, n.view.State, n.change, w.taken[name])
		}
		t.Fatalf("%+v begins; that makes %v unavailable by our doing, and %d may be", p, ours, limit)
	}
}

// noteTaken keeps which nodes lost an available daemon to the rollout, and have none since.
func (w *world) noteTaken(p *Permit) {
	c := w.course
	if way := fmt.Sprint(c.back, c.state.target, w.begunAgain()); way != w.way {
		w.way = way
		if c.back {
			clear(w.taken)
		}
	}
	for name := range w.taken {
		m := w.nodes[name]
		empty := m != nil && m.daemon.Empty()
		// Where every revision before the target has failed, there is nothing that such a node could be given.
		nothing := m != nil && m.daemon.Revision == "" && c.changing && w.target(name) == ""
		if m == nil || m.daemon.Available && c.nodes[name].change.begun == nil || nothing || empty &&
			!w.Selects(w.target(name), name) {
			delete(w.taken, name)
		}
	}
	if p != nil && p.From != "" && !p.Free && !w.ds.Surge {
		w.taken[p.Node] = true
	}
}
