package matrix

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// totalsOf is the oracle: the totals of one DaemonSet, counted from nothing by
// walking all nodes and pods. It shares no code with the running totals.
type oracleTotals struct {
	status              fact.Status
	unavailable, surges int
	// ups are the nodes whose daemon the rollout may rely on.
	ups int
	// outdated: some desired node's pod is available and of an older revision.
	outdated               bool
	lacking, down, surging []string // nodes
}

func (w *world) totalsOf(uid types.UID) oracleTotals {
	ds := w.sets[uid]
	out := oracleTotals{status: fact.Status{ObservedGeneration: ds.Generation}}
	for name := range w.nodes {
		wanted, _ := w.fits(uid, name)
		var here []fact.Pod
		for _, p := range w.podsOf(uid, name) {
			if p.Phase == fact.PodActive || !p.Terminating {
				here = append(here, p)
			}
		}
		w.countStatus(&out.status, ds, wanted, here)
		up := wanted && len(here) > 0 && w.available(here[0], ds)
		if wanted && !up {
			out.lacking = append(out.lacking, name)
		}
		out.outdated = out.outdated || up && here[0].Revision != ds.Revision
		if wanted || len(here) > 0 {
			before := out
			w.countRollout(&out, ds, name, here)
			if out.unavailable > before.unavailable {
				out.down = append(out.down, name)
			}
			if out.surges > before.surges {
				out.surging = append(out.surging, name)
			}
		}
	}
	out.status.Unavailable = out.status.Desired - out.status.Available
	return out
}

func (w *world) countStatus(st *fact.Status, ds fact.DaemonSet, wanted bool, here []fact.Pod) {
	if !wanted {
		if len(here) > 0 {
			st.Misscheduled++
		}
		return
	}
	st.Desired++
	if len(here) == 0 {
		return
	}
	st.Current++
	if here[0].Ready {
		st.Ready++
	}
	if w.available(here[0], ds) {
		st.Available++
	}
	if here[0].Revision == ds.Revision {
		st.Updated++
	}
}

func (w *world) countRollout(out *oracleTotals, ds fact.DaemonSet, node string, here []fact.Pod) {
	var older, newer []fact.Pod
	for _, p := range here {
		if _, doomed := w.doomed[p.UID]; p.Terminating || doomed {
			continue
		}
		if p.Revision == ds.Revision {
			newer = append(newer, p)
		} else {
			older = append(older, p)
		}
	}
	_, creating := w.creating[cellKey(ds.UID, node)]
	_, unanswered := w.unanswered[cellKey(ds.UID, node)]
	up := func(p fact.Pod) bool {
		_, unsure := w.unsure[p.UID]
		return !unsure && w.available(p, ds)
	}
	before := out.surges
	defer func() {
		if out.surges == before && len(older)+len(newer) > 0 && w.mayStillRun(ds.UID, node) {
			out.surges++
		}
	}()
	if both := append(slices.Clone(older), newer...); len(older) < 2 && len(newer) < 2 && len(both) > 0 && up(both[0]) {
		out.ups++
	}
	wanted, _ := w.fits(ds.UID, node)
	lost := !wanted && len(newer) == 1 && !newer[0].Bound
	switch {
	case lost && len(here) == 1:
	case len(older) > 1 || len(newer) > 1:
		out.unavailable++
		out.surges++
	case len(older) == 0 && len(newer) == 0:
		out.unavailable++
	case len(older) == 1 && len(newer) == 1:
		out.unavailable++
		if !up(newer[0]) && !lost {
			out.surges++
		}
	case len(newer) == 1:
		if !up(newer[0]) {
			out.unavailable++
		}
	default:
		if !up(older[0]) {
			out.unavailable++
		}
		if creating || unanswered {
			out.surges++
		}
	}
}

// mayStillRun: a deletion is on its way, and nobody has seen it arrive.
func (w *world) mayStillRun(uid types.UID, node string) bool {
	return slices.ContainsFunc(w.podsOf(uid, node), func(p fact.Pod) bool {
		_, doomed := w.doomed[p.UID]
		return doomed && !p.Terminating
	})
}

// available: ready for long enough, on a clock that is not ahead of ours, and not before it was made.
func (w *world) available(p fact.Pod, ds fact.DaemonSet) bool {
	since := p.ReadySince
	if since.Before(p.Created) {
		since = p.Created
	}
	if seen := w.sawReady[p.UID]; seen.Before(since) {
		since = seen
	}
	return p.Ready && w.now.Sub(since) >= time.Duration(ds.MinReadySeconds)*time.Second
}

// fits judges a node by the rules of the revision that it is to have.
func (w *world) fits(uid types.UID, node string) (shouldRun, shouldContinue bool) {
	want, guided := w.wants(uid, node)
	run, stays := w.fitsBy(uid, want, node)
	if !guided || run {
		return run, stays
	}
	// A pod that is where its own revision wants it stays until it is its turn.
	return false, stays || slices.ContainsFunc(w.podsOf(uid, node), func(p fact.Pod) bool {
		fits, stays := w.fitsBy(uid, p.Revision, node)
		_, known := w.templates[uid][p.Revision]
		st, _ := w.m.Rollout(uid)
		return fits || stays && (!known || st.StableRevision != st.TargetRevision)
	})
}

// fitsBy judges a node by a revision the plain way: build the pod's tolerations and
// selectors and compare.
func (w *world) fitsBy(uid types.UID, revision, node string) (shouldRun, shouldContinue bool) {
	spec, known := w.templates[uid][revision]
	n := w.nodes[node]
	if !known {
		return false, len(w.podsOf(uid, node)) > 0
	}
	if spec.NodeName != "" && spec.NodeName != node {
		return false, false
	}
	if !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(n.Labels)) || !affinityFits(spec.Affinity, n) {
		return false, false
	}
	untolerated := func(effect corev1.TaintEffect) bool {
		return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool {
			return t.Effect == effect && !slices.ContainsFunc(placement.Tolerations(&spec), func(o corev1.Toleration) bool {
				return (o.Key == "" || o.Key == t.Key) && (o.Effect == "" || o.Effect == effect) &&
					(o.Operator == corev1.TolerationOpExists || o.Value == t.Value)
			})
		})
	}
	if untolerated(corev1.TaintEffectNoExecute) {
		return false, false
	}
	return !untolerated(corev1.TaintEffectNoSchedule), true
}

// affinityFits knows In on labels and on the node's name, which is what the
// random tests use.
func affinityFits(a *corev1.Affinity, n fact.Node) bool {
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		ok := len(term.MatchExpressions)+len(term.MatchFields) > 0
		for _, e := range term.MatchExpressions {
			ok = ok && slices.Contains(e.Values, n.Labels[e.Key])
		}
		for _, f := range term.MatchFields {
			ok = ok && f.Key == metav1.ObjectNameField && slices.Contains(f.Values, n.Name)
		}
		if ok {
			return true
		}
	}
	return false
}
