package matrix

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

const guided = types.UID("logs")

// guidedWorld is a world whose DaemonSet follows a policy.
type guidedWorld struct {
	*world
	policy *rolloutpolicy.Policy
	sick   map[string]fact.Health
	// was says of nodes whose daemon was taken away for a target what it was like.
	was map[string]departed
	// worked are nodes from which a daemon was taken that was available.
	worked map[string]bool
	// ran are the revisions that ran anywhere since the target is this one.
	since string
	ran   map[string]bool
}

type departed struct {
	target string
	before standing.Before
}

func drawGuidedPolicy(t *rapid.T) *rolloutpolicy.Policy {
	text := rapid.SampledFrom([]string{
		"", "waves: [{name: canary, count: 1, soak: 10s}]\n", "waves: [{name: ssd, nodes: {matchLabels: {disk: ssd}}, approval: Manual, maxUnavailable: 1}]\n",
		"waves: [{name: canary, percent: 20}, {name: disks, each: disk, soak: 5s}]\n",
	}).Draw(t, "waves") + rapid.SampledFrom([]string{"", "domains: [{key: disk, maxUnavailable: 1}]\n"}).Draw(t, "domains") +
		rapid.SampledFrom([]string{"", "failure: {then: Rollback}\n",
			"failure: {max: 50%, min: 2, startDeadline: 1m}\n"}).Draw(t, "failure") +
		rapid.SampledFrom([]string{"", "pace: {nodesPerMinute: 6}\n"}).Draw(t, "pace")
	var spec v1alpha1.RolloutPolicySpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	p, err := rolloutpolicy.Compile(&spec, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// template is that of a revision: it is always the same.
func (w *guidedWorld) template(t *rapid.T, revision string) corev1.PodSpec {
	if spec, known := w.templates[guided][revision]; known {
		return spec
	}
	switch rapid.SampledFrom([]string{"none", "none", "ssd", "typo", "spot", "node"}).Draw(t, "rules of "+revision) {
	case "ssd":
		return corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}
	case "typo":
		return corev1.PodSpec{NodeSelector: map[string]string{"disk": "typo"}}
	case "spot":
		return corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}}
	case "node":
		return corev1.PodSpec{NodeName: nodeNames[1]}
	}
	return corev1.PodSpec{}
}

func (w *guidedWorld) follow(t *rapid.T, change func(*fact.Rollout)) {
	info := w.rolloutOf(guided)
	change(&info)
	w.setRollout(info)
}

// again starts a controller again: it knows what the API holds, and what was under way
// is done or not.
func (w *guidedWorld) again(t *rapid.T) {
	for _, a := range w.inFlight {
		if rapid.Bool().Draw(t, "it was done") {
			w.event(a)
		}
	}
	w.inFlight, w.late = nil, nil
	clear(w.creating)
	clear(w.unanswered)
	clear(w.doomed)
	clear(w.unsure)
	w.m = New(w.cfg)
	w.m.Step(fact.Now{Time: w.now})
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		w.m.Step(w.nodes[name])
		w.m.Step(w.sick[name])
	}
	for _, info := range w.rollouts {
		w.m.Step(info)
	}
	for _, info := range w.sets {
		w.m.Step(info)
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		w.m.Step(w.pods[uid])
	}
}

// assigned says from the rollout's status and the node which revisions a pod made
// there may have. It shares no code with the course.
func (w *guidedWorld) assigned(node string, st *v1alpha1.DaemonSetRolloutStatus) []string {
	stable, target := st.StableRevision, st.TargetRevision
	failed := slices.ContainsFunc(st.FailedRevisions,
		func(f v1alpha1.FailedRevision) bool { return f.Revision == target })
	switch {
	case stable == target:
		return []string{stable}
	case failed, w.rollouts[guided].Following != course.Followed && w.newestOn(guided, node) == "":
		return append(w.standIns(st), stable)
	case stable == "" && st.Step != "" && w.newestOn(guided, node) == "":
		return append(w.standIns(st), target)
	case stable == "":
		return []string{target}
	}
	for _, p := range w.podsOf(guided, node) {
		if p.Revision == target {
			return []string{target, stable}
		}
	}
	if w.stepBegan(guided, node, st) {
		return []string{target}
	}
	return []string{stable}
}

// standIns are the revisions that a node without a daemon may have until its step begins, where steps are asked for and
// there is no stable one: those that ran.
func (w *guidedWorld) standIns(st *v1alpha1.DaemonSetRolloutStatus) (out []string) {
	if st.StableRevision != "" || st.Step == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(w.ran)), func(revision string) bool {
		return revision == st.TargetRevision || slices.ContainsFunc(st.FailedRevisions,
			func(f v1alpha1.FailedRevision) bool { return f.Revision == revision })
	})
}

// decide takes the next actions and judges them.
func (w *guidedWorld) decide(t *rapid.T) {
	before, known := w.m.Rollout(guided)
	down := w.down()
	actions := w.ready()
	after, _ := w.m.Rollout(guided)
	if w.since != after.TargetRevision {
		w.since, w.ran = after.TargetRevision, map[string]bool{}
	}
	for _, p := range w.pods {
		w.ran[p.Revision] = true
	}
	info := w.rollouts[guided]
	maps.DeleteFunc(w.was, func(_ string, d departed) bool { return d.target != after.TargetRevision }) // another change has come
	for _, a := range actions {
		t.Logf("%s", a)
		switch a := a.(type) {
		case *action.CreatePod:
			may := w.assigned(a.Node, &after)
			if known {
				may = append(may, w.assigned(a.Node, &before)...)
			}
			if !slices.Contains(may, a.Revision) || a.Revision == "" {
				t.Fatalf("%s: the node was assigned %q by\n%+v", a, may, after)
			}
			if run, _ := w.fitsBy(guided, a.Revision, a.Node); !run {
				t.Fatalf("%s: the revision does not select the node", a)
			}
			w.checkFirst(t, a, &after)
			w.checkBefore(t, a, &after)
		case *action.DeletePod:
			if a.Reason == action.ReasonNodeUnfit {
				// At once goes only what the node itself does not let stay.
				selects, stays := w.fitsBy(guided, w.pods[a.PodUID].Revision, a.Node)
				if selects || stays && after.StableRevision != after.TargetRevision {
					t.Fatalf("%s: its own revision wants it there, and its turn has not come\n%+v", a, after)
				}
			}
			w.departs(a, &after)
			if a.Reason != action.ReasonTurn {
				continue
			}
			w.checkTurn(t, a, known, &before, &after)
			if info.Spec.Paused || info.Following != course.Followed || info.Status == nil {
				t.Fatalf("%s although nothing may begin: %+v", a, info)
			}
			if p := w.pods[a.PodUID]; w.available(p, w.sets[guided]) && w.unsure[p.UID].IsZero() {
				w.checkDomains(t, a, down) // what does not work can be taken away at any time
			}
			down[a.Node] = true
		}
	}
	if findings := w.m.Audit(); len(findings) > 0 {
		t.Fatalf("the audit found %q", findings)
	}
}

// mayRecover is for how long a daemon that was available may count as one that works.
const mayRecover = time.Minute

// departs takes note of what a daemon is like that is taken away for a change.
func (w *guidedWorld) departs(a *action.DeletePod, st *v1alpha1.DaemonSetRolloutStatus) {
	p, ds := w.pods[a.PodUID], w.sets[guided]
	delete(w.was, a.Node)
	if w.available(p, ds) {
		w.worked[a.Node] = true
	}
	turn := a.Reason == action.ReasonTurn || a.Reason == action.ReasonOutdatedUnavailable
	if !turn || ds.Strategy.Surges() || st.StableRevision == st.TargetRevision || p.Revision == st.TargetRevision ||
		len(w.podsOf(guided, a.Node)) > 1 || !w.selects(guided, st.TargetRevision, a.Node) {
		return
	}
	if !w.stepBegan(guided, a.Node, st) && !w.selects(guided, st.StableRevision, a.Node) {
		return // a failed revision leaves a node that is to have none until its step: nothing was there then
	}
	w.was[a.Node] = departed{st.TargetRevision, standing.WasNotAvailable}
	fell, has := w.fell[p.UID]
	switch {
	case w.available(p, ds) && w.unsure[p.UID].IsZero():
		w.was[a.Node] = departed{st.TargetRevision, standing.WasAvailable}
	case has && w.now.Sub(fell) <= mayRecover: // its change may have begun while it counted as one that works
		delete(w.was, a.Node)
	}
}

// checkBefore sees that the next pod says what the one was like that was taken away.
func (w *guidedWorld) checkBefore(t *rapid.T, a *action.CreatePod, st *v1alpha1.DaemonSetRolloutStatus) {
	was, known := w.was[a.Node]
	delete(w.was, a.Node)
	if w.worked[a.Node] && a.Before == standing.WasAvailable {
		return // also where what came after the last one that was available was never so
	}
	if known && a.Revision == was.target && st.TargetRevision == was.target && st.StableRevision != was.target &&
		a.Before != was.before {
		t.Fatalf("%s says that the daemon before was %q; it was %q\n%+v", a, a.Before, was.before, *st)
	}
}

// checkFirst sees that a node which only the target selects gets its first pod only while
// something may begin.
func (w *guidedWorld) checkFirst(t *rapid.T, a *action.CreatePod, st *v1alpha1.DaemonSetRolloutStatus) {
	info := w.rollouts[guided]
	stands := info.Spec.Paused || info.Following != course.Followed || info.Status == nil
	_, unanswered := w.unanswered[cellKey(guided, a.Node)]
	first := st.StableRevision != "" && st.StableRevision != st.TargetRevision && a.Revision == st.TargetRevision
	if stands && first && !unanswered && !w.selects(guided, st.StableRevision, a.Node) &&
		len(w.podsOf(guided, a.Node)) == 0 {
		t.Fatalf("%s although nothing may begin: %+v", a, info)
	}
}

// checkTurn sees that the step of a node which loses its pod has begun, or that it goes back.
func (w *guidedWorld) checkTurn(t *rapid.T, a *action.DeletePod, known bool, before,
	after *v1alpha1.DaemonSetRolloutStatus) {
	back := func(st *v1alpha1.DaemonSetRolloutStatus) bool {
		return st.TargetRevision == st.StableRevision || st.StableRevision == "" ||
			slices.ContainsFunc(st.FailedRevisions, func(f v1alpha1.FailedRevision) bool {
				return f.Revision == st.TargetRevision || f.Revision == w.pods[a.PodUID].Revision
			})
	}
	p := w.pods[a.PodUID]
	works := w.available(p, w.sets[guided]) && w.unsure[p.UID].IsZero()
	if older := p.Revision != after.TargetRevision && p.Revision != after.StableRevision; older && !works {
		return // one that was the target once keeps what it has only as long as that works
	}
	if back(after) || known && back(before) || w.stepBegan(guided, a.Node, after) || known &&
		w.stepBegan(guided, a.Node, before) {
		return
	}
	t.Fatalf("%s although its step has not begun\n%+v\n%s", a, *after, w.m.Dump())
}

// down are the nodes that should have an available daemon and have none. Nothing is taken
// away from a node without a pod that the stable revision does not select.
func (w *guidedWorld) down() map[string]bool {
	out := map[string]bool{}
	st, _ := w.m.Rollout(guided)
	for name := range w.nodes {
		if run, _ := w.fits(guided, name); !run && w.goes(name) {
			out[name] = true
			continue
		} else if first := !w.selects(guided, st.StableRevision, name); !run || first && w.sick[name].Fault == "" &&
			len(w.podsOf(guided, name)) == 0 {
			continue
		}
		out[name] = !slices.ContainsFunc(w.podsOf(guided, name), func(p fact.Pod) bool {
			return p.Phase == fact.PodActive && !w.leaving(p) && w.unsure[p.UID].IsZero() &&
				w.available(p, w.sets[guided])
		})
	}
	return out
}

// goes reports whether the daemon is on its way away from a node that is to have none.
func (w *guidedWorld) goes(node string) bool {
	st, _ := w.m.Rollout(guided)
	here := w.podsOf(guided, node)
	return w.inFleet(guided, node, &st) && len(here) > 0 &&
		!slices.ContainsFunc(here, func(p fact.Pod) bool { return p.Phase == fact.PodActive && !w.leaving(p) })
}

func (w *guidedWorld) checkDomains(t *rapid.T, a *action.DeletePod, down map[string]bool) {
	for _, d := range w.policy.Domains {
		value, has := w.nodes[a.Node].Labels[d.Key]
		all, lost := 0, 1
		for name := range w.nodes {
			is := down[name]
			if st, _ := w.m.Rollout(guided); !w.inFleet(guided, name, &st) {
				continue
			}
			if v, also := w.nodes[name].Labels[d.Key]; also && v == value {
				all++
				if is && name != a.Node {
					lost++
				}
			}
		}
		if has && lost > d.MaxUnavailable.Of(all) {
			t.Fatalf("%s: then %d of %d are down at %s=%s\n%s", a, lost, all, d.Key, value, w.m.Dump())
		}
	}
}

// TestRandomPolicies lets anything happen to a DaemonSet that follows a policy.
func TestRandomPolicies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &guidedWorld{world: newWorld(row.Config{BurstReplicas: rapid.SampledFrom([]int{2, 250}).Draw(t, "burst")}),
			sick: map[string]fact.Health{}, was: map[string]departed{}, worked: map[string]bool{}}
		for range 5 {
			drawNode(t, w.world)
		}
		w.policy = drawGuidedPolicy(t)
		w.follow(t, func(i *fact.Rollout) { i.Policy, i.PolicyUID = w.policy, "p" })
		revision := func(t *rapid.T) {
			old, hash := w.sets[guided], rapid.SampledFrom(revisions).Draw(t, "revision")
			w.setDaemonSet(fact.DaemonSet{UID: guided, Namespace: "default", Name: "logs",
				Generation: old.Generation + 1,
				Revision:   hash, Reported: old.Reported, Conditions: old.Conditions,
				Strategy: rapid.SampledFrom([]fact.Strategy{rollingUpdate("1", "0"), rollingUpdate("50%", "0"),
					rollingUpdate("0", "1")}).Draw(t, "strategy"),
			}, w.template(t, hash))
		}
		revision(t)
		t.Repeat(map[string]func(*rapid.T){
			"calm":     func(t *rapid.T) { w.decide(t); w.calm() },
			"calm 2":   func(t *rapid.T) { w.decide(t); w.calm() },
			"calm 3":   func(t *rapid.T) { w.decide(t); w.calm() },
			"template": revision,
			"node":     func(t *rapid.T) { drawNode(t, w.world) },
			"drop node": func(t *rapid.T) {
				name := rapid.SampledFrom(nodeNames).Draw(t, "node")
				delete(w.sick, name)
				delete(w.was, name)
				w.dropNode(name)
			},
			"health": func(t *rapid.T) {
				h := fact.Health{Name: rapid.SampledFrom(nodeNames).Draw(t, "node"), Since: w.now}
				h.Fault = rapid.SampledFrom([]string{"", "", "does not answer"}).Draw(t, "fault")
				switch {
				case h.Fault != "" && rapid.Bool().Draw(t, "maintained"):
					h.Maintained, h.Since = true, time.Time{}
				case h.Fault != "":
					h.Silent = true
				}
				if w.nodes[h.Name].Name != "" {
					w.sick[h.Name] = h
					w.health(h)
				}
			},
			"change": func(t *rapid.T) { drawPodChange(t, w.world) },
			"trouble": func(t *rapid.T) {
				if len(w.pods) > 0 {
					p := w.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")]
					p.Trouble, p.Certain, p.Ready, p.ReadySince, p.Bound = "image", true, false, time.Time{}, true
					w.setPod(p)
				}
			},
			"finish":   func(t *rapid.T) { drawFinish(t, w.world) },
			"finish 2": func(t *rapid.T) { drawFinish(t, w.world) },
			"deliver":  func(*rapid.T) { w.deliver() },
			"tick": func(t *rapid.T) {
				w.tick(time.Duration(rapid.IntRange(1, 60).Draw(t,
					"seconds")) * time.Second)
			},
			"policy": func(t *rapid.T) {
				w.policy = drawGuidedPolicy(t)
				w.follow(t, func(i *fact.Rollout) { i.Policy = w.policy })
			},
			"following": func(t *rapid.T) {
				w.follow(t, func(i *fact.Rollout) {
					i.Following = rapid.SampledFrom([]course.Following{course.Followed, course.Followed, course.Lost,
						course.Gone}).Draw(t, "following")
				})
			},
			"spec": func(t *rapid.T) {
				st, _ := w.m.Rollout(guided)
				clear(w.was) // whoever tries again forgets what was before
				w.follow(t, func(i *fact.Rollout) {
					i.Spec = v1alpha1.DaemonSetRolloutSpec{Paused: rapid.IntRange(0, 3).Draw(t, "paused") == 0}
					i.Spec.Approved = &v1alpha1.StepApproval{Revision: st.TargetRevision, Change: st.Change, Step: v1alpha1.AllSteps}
					i.Spec.Retry = &v1alpha1.Retry{Revision: st.TargetRevision,
						Count: rapid.Int32Range(0, 3).Draw(t, "retry")}
				})
			},
			"again": func(t *rapid.T) {
				clear(w.was) // what was taken in its last moment nobody knows
				w.again(t)
			},
			"": func(t *rapid.T) { w.audit(t) },
		})
		w.settles(t)
	})
}

func (w *guidedWorld) audit(t *rapid.T) {
	if findings := w.m.Audit(); len(findings) > 0 {
		t.Fatalf("the audit found %q", findings)
	}
}

// settles checks liveness: when all is well and approved, the next revision reaches
// every node.
func (w *guidedWorld) settles(t *rapid.T) {
	for name := range w.sick {
		w.health(fact.Health{Name: name})
	}
	clear(w.sick)
	old, last := w.sets[guided], rollingUpdate("1", "0")
	if rapid.Bool().Draw(t, "with surge in the end") {
		last = rollingUpdate("0", "1")
	}
	w.setDaemonSet(fact.DaemonSet{UID: guided, Namespace: "default", Name: "logs", Generation: old.Generation + 1,
		Revision: "final", Reported: old.Reported, Conditions: old.Conditions, Strategy: last}, w.template(t, "final"))
	w.follow(t, func(i *fact.Rollout) { i.Following, i.Spec = course.Followed, v1alpha1.DaemonSetRolloutSpec{} })
	w.decide(t) // nobody can approve what has not begun
	w.follow(t, func(i *fact.Rollout) {
		i.Spec.Approved = &v1alpha1.StepApproval{Revision: "final", Step: v1alpha1.AllSteps}
	})
	for range 300 {
		w.decide(t)
		w.calm()
		for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
			if p := w.pods[uid]; p.Terminating || w.nodes[p.Node].Name == "" {
				w.dropPod(uid)
			} else if p.Phase == fact.PodActive && (!p.Ready || p.Certain || p.Adopting) {
				p.Bound, p.Ready, p.ReadySince, p.Trouble, p.Certain, p.Unplaceable, p.Adopting = true, true, w.now, "", false, "", false
				w.setPod(p)
			}
		}
		w.tick(10 * time.Second)
	}
	st, _ := w.m.Rollout(guided)
	for name := range w.nodes {
		if run, _ := w.fits(guided, name); run && !w.asWanted(guided, name) {
			verdict, why, _ := w.m.Verdict(guided, name)
			t.Fatalf("%s is %s: %s; the rollout is %s: %s\n%s", name, verdict, why, st.Phase, st.Message, w.m.Dump())
		}
	}
	if st.Phase != v1alpha1.PhaseComplete {
		t.Fatalf("the rollout is %s: %s\n%s", st.Phase, st.Message, w.m.Dump())
	}
}
