package matrix

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// mark is where a DaemonSet stood at the last look, and when it came further.
type mark struct {
	generation                  int64
	desired, updated, available int32
	since                       time.Time
}

// look moves the marks; the matrix looks whenever its actions are taken.
func (w *world) look() {
	for uid, ds := range w.sets {
		if ds.Deleting {
			continue
		}
		old, st := w.marks[uid], w.totalsOf(uid).status
		now := mark{ds.Generation, st.Desired, st.Updated, st.Available, old.since}
		if old.generation != now.generation || old.desired != now.desired || old.updated < now.updated || old.available < now.available {
			now.since = w.now
		}
		w.marks[uid] = now
	}
}

// conditionsOf is the oracle of the conditions: it walks all nodes.
func (w *world) conditionsOf(uid types.UID) fact.Conditions {
	ds, total := w.sets[uid], w.totalsOf(uid)
	st := total.status
	if st.Desired == 0 {
		none := fact.Condition{Status: corev1.ConditionTrue, Reason: "NoNodesSelected", Message: "no node is selected"}
		return fact.Conditions{Available: none, Progressing: none}
	}
	of := fmt.Sprintf(" of %d nodes have", st.Desired)
	if st.Desired == 1 {
		of = " of 1 node has"
	}
	cond := func(ok bool, reason string, message ...any) fact.Condition {
		c := fact.Condition{Status: corev1.ConditionFalse, Reason: reason, Message: fmt.Sprint(message...)}
		if ok {
			c.Status = corev1.ConditionTrue
		}
		return c
	}
	var out fact.Conditions
	available := fmt.Sprint(st.Available, of, " an available pod")
	out.Available = cond(true, "AllNodesAvailable", available)
	waiting := w.name(ds, total.lacking, w.first)
	if st.Available < st.Desired {
		out.Available = cond(false, "NodesUnavailable", available, "; waiting for ", waiting)
	}
	updated := fmt.Sprint(st.Updated, of, " a pod of revision ", ds.Revision)
	maxUnavailable, maxSurge := budgetOf(ds, int(st.Desired))
	surge := ds.Strategy.Surges()
	limit := w.cfg.StallAfter + time.Duration(ds.MinReadySeconds)*time.Second
	switch {
	case st.Updated == st.Desired:
		out.Progressing = cond(true, "DaemonSetUpdated", updated)
	case ds.Strategy.OnDelete && st.Available == st.Desired:
		out.Progressing = cond(false, "WaitingForDeletion", updated, "; an older pod is replaced when it is deleted (updateStrategy OnDelete)")
	case w.now.Sub(w.marks[uid].since) < limit:
		out.Progressing = cond(true, "RolloutInProgress", updated)
	case !ds.Strategy.OnDelete && total.outdated && !surge && total.unavailable >= maxUnavailable:
		out.Progressing = cond(false, "BudgetExhausted", updated, "; rollout waits: ", total.unavailable, " unavailable, ", maxUnavailable, " allowed: ",
			w.name(ds, total.down, w.first))
	case !ds.Strategy.OnDelete && total.outdated && surge && total.surges >= maxSurge:
		out.Progressing = cond(false, "BudgetExhausted", updated, "; rollout waits: ", total.surges, " surging, ", maxSurge, " allowed: ",
			w.name(ds, total.surging, w.successor))
	case st.Available == st.Desired:
		out.Progressing = cond(false, "RolloutStalled", updated, "; no pod has been replaced lately")
	default:
		out.Progressing = cond(false, "RolloutStalled", updated, "; waiting for ", waiting)
	}
	return out
}

// name names at most three nodes with their pods' troubles.
func (w *world) name(ds fact.DaemonSet, nodes []string, pick func(fact.DaemonSet, string) (fact.Pod, bool)) string {
	slices.Sort(nodes)
	var parts []string
	for _, n := range nodes[:min(3, len(nodes))] {
		p, ok := pick(ds, n)
		trouble := "no pod yet"
		if ok {
			trouble = w.trouble(ds, p)
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", n, trouble))
	}
	out := strings.Join(parts, ", ")
	if len(nodes) > 3 {
		out += fmt.Sprintf(" and %d more", len(nodes)-3)
	}
	return out
}

func (w *world) first(ds fact.DaemonSet, node string) (fact.Pod, bool) {
	for _, p := range w.podsOf(ds.UID, node) {
		if p.Phase == fact.PodActive || !p.Terminating {
			return p, true
		}
	}
	return fact.Pod{}, false
}

func (w *world) successor(ds fact.DaemonSet, node string) (fact.Pod, bool) {
	for _, p := range w.podsOf(ds.UID, node) {
		if p.Revision == ds.Revision && !w.leaving(p) {
			return p, true
		}
	}
	return fact.Pod{}, false
}

func (w *world) leaving(p fact.Pod) bool {
	_, doomed := w.doomed[p.UID]
	return p.Terminating || doomed
}

func (w *world) trouble(ds fact.DaemonSet, p fact.Pod) string {
	pod := "pod " + p.Name
	switch {
	case w.leaving(p):
		return pod + " is terminating"
	case p.Phase == fact.PodFailed:
		return pod + " has failed"
	case p.Phase == fact.PodSucceeded:
		return pod + " has succeeded"
	case p.Unplaceable != "":
		return pod + " cannot be placed: " + p.Unplaceable
	case !p.Bound:
		return pod + " is not scheduled yet"
	case !p.Ready:
		return pod + " is not ready"
	case !w.available(p, ds):
		return pod + " has not been ready for long enough yet"
	case !w.unsure[p.UID].IsZero():
		return pod + " may have been deleted: there was no answer"
	}
	return "more than one pod"
}
