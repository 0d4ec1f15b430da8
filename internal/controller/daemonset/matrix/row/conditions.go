package row

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// progress is how far a row was when it was last looked at, and since when it has not come further.
type progress struct {
	generation                  int64
	desired, updated, available int32
	since                       time.Time
}

// progressOf starts where the API's status stands, so that a restart neither ends a standstill nor begins one.
func progressOf(info *fact.DaemonSet, now time.Time) progress {
	s := &info.Reported
	p := progress{s.ObservedGeneration, s.Desired, s.Updated, s.Available, now}
	if info.Conditions.Progressing.Status == corev1.ConditionFalse {
		p.since = time.Time{}
	}
	return p
}

// observe compares with the running totals. More pods of the revision or more
// available ones are progress, and so is another aim.
func (p *progress) observe(r *Row, now time.Time) {
	t := &r.totals
	next := progress{r.info.Generation, t[desired], t[updated], t[available], p.since}
	if next.generation != p.generation || next.desired != p.desired ||
		next.updated > p.updated || next.available > p.available {
		next.since = now
	}
	*p = next
}

// standstill returns from when on the row counts as not moving; zero if it is
// where it should be. Waiting out minReadySeconds is no standstill.
func (r *Row) standstill() time.Time {
	if r.guide != nil || r.totals[updated] == r.totals[desired] || r.waitsForDeletion() {
		return time.Time{}
	}
	return r.progress.since.Add(r.cfg.StallAfter + time.Duration(r.info.MinReadySeconds)*time.Second)
}

// waitsForDeletion reports whether only somebody's deletions would move the row.
func (r *Row) waitsForDeletion() bool {
	t := &r.totals
	return r.info.Strategy.OnDelete && t[updated] < t[desired] && t[available] == t[desired]
}

// Conditions says in words where the row stands. It looks at a few cells only.
func (r *Row) Conditions() fact.Conditions {
	if r.totals[desired] == 0 {
		none := fact.True(fact.NoNodesSelected, "no node is selected")
		if g := r.guide; g != nil && g.course.Started() && g.course.Wants() {
			return fact.Conditions{Available: none, Progressing: r.progressing()} // pods are still to be taken away
		}
		return fact.Conditions{Available: none, Progressing: none}
	}
	return fact.Conditions{Available: r.available(), Progressing: r.progressing()}
}

func (r *Row) available() fact.Condition {
	t := &r.totals
	counts := fmt.Sprintf("%d of %s an available pod", t[available], nodesHave(t[desired]))
	if t[available] == t[desired] {
		return fact.True(fact.AllNodesAvailable, counts)
	}
	return fact.False(fact.NodesUnavailable, counts+"; waiting for "+r.sample(lacking))
}

func (r *Row) progressing() fact.Condition {
	t := &r.totals
	counts := fmt.Sprintf("%d of %s a pod of revision %s", t[updated], nodesHave(t[desired]), r.info.Revision)
	if g := r.guide; g != nil && g.course.Started() {
		return g.progressing(r, counts)
	}
	switch {
	case t[updated] == t[desired]:
		return fact.True(fact.DaemonSetUpdated, counts)
	case r.waitsForDeletion():
		const why = "; an older pod is replaced when it is deleted (updateStrategy OnDelete)"
		return fact.False(fact.WaitingForDeletion, counts+why)
	case r.standstill().After(r.now):
		return fact.True(fact.RolloutInProgress, counts)
	}
	if users := r.budgetUsers(); users != "" {
		return fact.False(fact.BudgetExhausted, counts+"; rollout waits: "+users)
	}
	if t[available] == t[desired] {
		return fact.False(fact.RolloutStalled, counts+"; no pod has been replaced lately")
	}
	return fact.False(fact.RolloutStalled, counts+"; waiting for "+r.sample(lacking))
}

// budgetUsers says who uses the budget up that pods of an older revision wait for; "" if they do not wait for it.
func (r *Row) budgetUsers() string {
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

// groups are the numbers of which a row keeps the cells too, in the order of nodes, so
// that a few can be named without a walk.
var groups = [...]count{lacking, down, surging}

// sampleSize is how many nodes a message names.
const sampleSize = 3

// sample names the first nodes of a group and what each waits for.
func (r *Row) sample(g count) string {
	var names []string
	r.groups[g].Ascend(func(c *cell) bool {
		names = append(names, c.node+" ("+r.describe(c, g)+")")
		return len(names) < sampleSize
	})
	text := strings.Join(names, ", ")
	if more := r.groups[g].Len() - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// describe says why the cell is in the group. The words change seldom: a step that takes a moment has none of its own.
func (r *Row) describe(c *cell, g count) string {
	p := r.decisive(c, g)
	if p == nil {
		return "no pod yet"
	}
	switch why := r.trouble(p); why {
	case TooManyPods:
		return string(why)
	case PodUnplaceable, PodNoRoom:
		return "pod " + p.info.Name + " " + string(why) + ": " + p.info.Unplaceable
	default:
		return "pod " + p.info.Name + " " + string(why)
	}
}

// decisive is the pod that puts the cell into the group: the successor where
// the group is about surging, else the one that counts in the status.
func (r *Row) decisive(c *cell, g count) *Pod {
	target := r.order(c.node).Target
	for _, p := range c.pods {
		if g == surging && p.live() && p.info.Revision == target || g != surging && p.mapped() {
			return p
		}
	}
	return nil
}
