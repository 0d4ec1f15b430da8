package matrix

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of the conditions.
const (
	ConditionAvailable   appsv1.DaemonSetConditionType = "Available"
	ConditionProgressing appsv1.DaemonSetConditionType = "Progressing"
)

// The reasons of the conditions.
const (
	// NoNodesSelected: there is nothing to run; both conditions are True.
	NoNodesSelected = "NoNodesSelected"
	// AllNodesAvailable: every selected node has an available pod.
	AllNodesAvailable = "AllNodesAvailable"
	// NodesUnavailable: some selected nodes have none; Available is False.
	NodesUnavailable = "NodesUnavailable"
	// DaemonSetUpdated: every selected node has a pod of the current revision.
	DaemonSetUpdated = "DaemonSetUpdated"
	// RolloutInProgress: some have not yet, and something moved lately.
	RolloutInProgress = "RolloutInProgress"
	// WaitingForDeletion: the strategy is OnDelete and old pods are left;
	// Progressing is False.
	WaitingForDeletion = "WaitingForDeletion"
	// BudgetExhausted: nothing moves because maxUnavailable or maxSurge is used
	// up; Progressing is False.
	BudgetExhausted = "BudgetExhausted"
	// FollowsPolicy and the name of a rollout's phase behind it: a policy says how far
	// the rollout goes. Progressing is True while nodes are changed or watched.
	FollowsPolicy = "RolloutPolicy"
	// NotStored is the reason while the API does not hold the rollout yet.
	NotStored = FollowsPolicy + "NotStored"
	// RolloutStalled: nothing moves for another reason; Progressing is False.
	RolloutStalled = "RolloutStalled"
)

// Condition is a status condition without its times. It is comparable.
type Condition struct {
	Status          corev1.ConditionStatus
	Reason, Message string
}

// Conditions are those that the matrix computes. The zero value is that of a
// DaemonSet without conditions.
type Conditions struct{ Available, Progressing Condition }

// ProjectConditions reads a DaemonSet's conditions.
func ProjectConditions(s *appsv1.DaemonSetStatus) Conditions {
	var out Conditions
	for i := range s.Conditions {
		c := &s.Conditions[i]
		have := Condition{Status: c.Status, Reason: c.Reason, Message: c.Message}
		switch c.Type {
		case ConditionAvailable:
			out.Available = have
		case ConditionProgressing:
			out.Progressing = have
		}
	}
	return out
}

// Apply writes the conditions into a new list in s; the old list, which may be
// shared, is not changed. Conditions of other types stay as they are, and the
// time of a transition stays unless the condition's status changes now.
func (cs Conditions) Apply(s *appsv1.DaemonSetStatus, now time.Time) {
	next := append(make([]appsv1.DaemonSetCondition, 0, len(s.Conditions)+2), s.Conditions...)
	set := func(t appsv1.DaemonSetConditionType, c Condition) {
		want := appsv1.DaemonSetCondition{Type: t, Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: metav1.NewTime(now)}
		for i := range next {
			if next[i].Type != t {
				continue
			}
			if next[i].Status == c.Status {
				want.LastTransitionTime = next[i].LastTransitionTime
			}
			next[i] = want
			return
		}
		next = append(next, want)
	}
	set(ConditionAvailable, cs.Available)
	set(ConditionProgressing, cs.Progressing)
	s.Conditions = next
}

// progress is how far a row was when it was last looked at, and since when it
// has not come further.
type progress struct {
	generation                  int64
	desired, updated, available int32
	since                       time.Time
}

// progressOf starts where the API's status stands, so that a restart neither
// ends a standstill nor begins one.
func progressOf(info *DaemonSetInfo, now time.Time) progress {
	s := &info.Reported
	p := progress{generation: s.ObservedGeneration, desired: s.Desired, updated: s.Updated, available: s.Available, since: now}
	if info.Conditions.Progressing.Status == corev1.ConditionFalse {
		p.since = time.Time{}
	}
	return p
}

// observe compares with the running totals. More pods of the revision or more
// available ones are progress, and so is another aim.
func (p *progress) observe(r *row, now time.Time) {
	t := &r.totals
	next := progress{r.info.Generation, t[desired], t[updated], t[available], p.since}
	if next.generation != p.generation || next.desired != p.desired || next.updated > p.updated || next.available > p.available {
		next.since = now
	}
	*p = next
}

// standstill returns from when on the row counts as not moving; zero if it is
// where it should be. Waiting out minReadySeconds is no standstill.
func (r *row) standstill() time.Time {
	if r.guide != nil || r.totals[updated] == r.totals[desired] || r.waitsForDeletion() {
		return time.Time{}
	}
	return r.progress.since.Add(r.cfg.StallAfter + time.Duration(r.info.MinReadySeconds)*time.Second)
}

// waitsForDeletion reports whether only somebody's deletions would move the row.
func (r *row) waitsForDeletion() bool {
	t := &r.totals
	return r.info.Strategy.OnDelete && t[updated] < t[desired] && t[available] == t[desired]
}

// conditions says in words where the row stands. It looks at a few cells only.
func (r *row) conditions() Conditions {
	if r.totals[desired] == 0 {
		none := Condition{corev1.ConditionTrue, NoNodesSelected, "no node is selected"}
		if g := r.guide; g != nil && g.course.Started() && g.course.Wants() {
			return Conditions{Available: none, Progressing: r.progressing()} // pods are still to be taken away
		}
		return Conditions{Available: none, Progressing: none}
	}
	return Conditions{Available: r.available(), Progressing: r.progressing()}
}

func (r *row) available() Condition {
	t := &r.totals
	counts := fmt.Sprintf("%d of %s an available pod", t[available], nodesHave(t[desired]))
	if t[available] == t[desired] {
		return Condition{corev1.ConditionTrue, AllNodesAvailable, counts}
	}
	return Condition{corev1.ConditionFalse, NodesUnavailable, counts + "; waiting for " + r.sample(lacking)}
}

func (r *row) progressing() Condition {
	t := &r.totals
	counts := fmt.Sprintf("%d of %s a pod of revision %s", t[updated], nodesHave(t[desired]), r.info.Revision)
	if g := r.guide; g != nil && g.course.Started() {
		return g.progressing(counts)
	}
	switch {
	case t[updated] == t[desired]:
		return Condition{corev1.ConditionTrue, DaemonSetUpdated, counts}
	case r.waitsForDeletion():
		return Condition{corev1.ConditionFalse, WaitingForDeletion, counts + "; an older pod is replaced when it is deleted (updateStrategy OnDelete)"}
	case r.standstill().After(r.now):
		return Condition{corev1.ConditionTrue, RolloutInProgress, counts}
	}
	if users := r.budgetUsers(); users != "" {
		return Condition{corev1.ConditionFalse, BudgetExhausted, counts + "; rollout waits: " + users}
	}
	if t[available] == t[desired] {
		return Condition{corev1.ConditionFalse, RolloutStalled, counts + "; no pod has been replaced lately"}
	}
	return Condition{corev1.ConditionFalse, RolloutStalled, counts + "; waiting for " + r.sample(lacking)}
}

// budgetUsers says who uses the budget up that pods of an older revision wait
// for; "" if they do not wait for it.
func (r *row) budgetUsers() string {
	maxUnavailable, maxSurge := r.budget()
	t := &r.totals
	switch {
	case t[outdated] == 0 || r.info.Strategy.OnDelete:
	case !r.surge && int(t[down]) >= maxUnavailable:
		return fmt.Sprintf("%d unavailable, %d allowed: %s", t[down], maxUnavailable, r.sample(down))
	case r.surge && int(t[surging]) >= maxSurge:
		return fmt.Sprintf("%d surging, %d allowed: %s", t[surging], maxSurge, r.sample(surging))
	}
	return ""
}

func nodesHave(n int32) string {
	if n == 1 {
		return "1 node has"
	}
	return fmt.Sprintf("%d nodes have", n)
}
