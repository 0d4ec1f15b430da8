package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/fetches"
	"github.com/everynode/everynode/test/chaos/history/lately"
	"github.com/everynode/everynode/test/chaos/history/lives"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
	"github.com/everynode/everynode/test/chaos/history/wants"
)

// The rules that Check knows.
const (
	Singles = "two daemons of one DaemonSet on a node"
	Surge   = "surge out of order"
	Budget  = "more taken down than the budget allows"
	Reason  = "deleted without a reason"
	Writes  = "what a user wrote"
)

// place is one DaemonSet on one node.
type place struct {
	set  types.UID
	node string
}

// pair is an available pod and the one that was put beside it.
type pair struct{ first, second types.UID }

// judge goes through the events of pods.
type judge struct {
	Record
	tracks map[types.UID]*track
	// pods are those that a DaemonSet has controlled, by place, and nodes the tracks of the nodes of a name.
	pods  map[place][]*track
	nodes map[string][]*track
	// lives are the pods of a name, in the order of their creation.
	lives map[string][]*track
	pulls map[types.UID][]*track // by the daemon for whose successor they pull images
	calls map[string][]Call
	sees  map[types.UID][]Sight
	// deleted are the pods that users deleted, touched those they made or moved.
	deleted, touched map[types.UID]bool
	// taken are the places whose available pod an update took down, with the
	// revision; doubled those where it put a second one.
	taken   map[place]int64
	doubled map[place]pair
	// leaving are the pods that were taken from places where there is to be none, begun is
	// when changes began under a policy with a pace.
	leaving map[place]types.UID
	given   map[place]version // running pods as they were given another content
	begun   map[types.UID][]time.Time
	ended   map[types.UID]bool // deletion judged
	most    int                // nodes at once, so far
	present map[types.UID]bool
	// policies are the tracks of all policies, rollouts those of the rollouts of a name,
	// markOfHash the template of each revision that there was.
	policies   []*track
	rollouts   map[string][]*track
	markOfHash map[string]string
	// authors are the objects that templates name, values what each content holds.
	authors []lately.Life
	values  map[string]revision.Held
	molds   molds.Book // what variants make of pods
	fetched int        // daemons taken whose nodes had to have images, and had them
	found   []Violation
}

func newJudge(r Record) *judge {
	j := &judge{
		Record: r, tracks: index(r.Events), pods: map[place][]*track{}, nodes: map[string][]*track{},
		lives: map[string][]*track{}, pulls: map[types.UID][]*track{}, calls: map[string][]Call{},
		sees: map[types.UID][]Sight{}, deleted: map[types.UID]bool{}, touched: map[types.UID]bool{},
		taken: map[place]int64{}, doubled: map[place]pair{}, leaving: map[place]types.UID{}, given: map[place]version{},
		begun: map[types.UID][]time.Time{}, ended: map[types.UID]bool{}, present: map[types.UID]bool{},
		rollouts: map[string][]*track{}, markOfHash: map[string]string{},
	}
	for _, c := range r.Calls {
		j.calls[c.Pod] = append(j.calls[c.Pod], c)
	}
	for _, s := range r.Sights {
		j.sees[s.UID] = append(j.sees[s.UID], s)
	}
	for _, w := range r.Writes {
		switch {
		case w.Kind != "Pod":
		case w.Delete:
			j.deleted[w.UID] = true
		default:
			j.touched[w.UID] = true
		}
	}
	for _, t := range lives.InOrder(j.tracks) {
		j.sort(t)
	}
	for _, e := range r.Events {
		j.molds.Add(e.Revision, e.Object, e.Deleted)
	}
	j.values = revision.Values(contents(r.Events))
	return j
}

func (j *judge) sort(t *track) {
	switch o := t.First().(type) {
	case *corev1.Node:
		j.nodes[o.Name] = append(j.nodes[o.Name], t)
	default:
		j.sortPolicies(t)
	case *corev1.Pod:
		j.lives[o.Name] = append(j.lives[o.Name], t)
		j.pulls[fetches.After(o)] = append(j.pulls[fetches.After(o)], t)
		seen := map[place]bool{}
		for _, v := range t.Versions {
			p := v.Object.(*corev1.Pod)
			at := place{ownerOf(p), daemon.TargetOf(p)}
			if at.set != "" && at.node != "" && !seen[at] {
				seen[at] = true
				j.pods[at] = append(j.pods[at], t)
			}
		}
	}
}

func (j *judge) report(rule string, revision int64, objects []types.UID, format string, args ...any) {
	j.found = append(j.found, Violation{
		Rule:     rule,
		Revision: revision,
		Objects:  objects,
		Message:  fmt.Sprintf(format, args...),
	})
}

func (j *judge) event(e *Event) {
	uid := e.Object.GetUID()
	switch o := e.Object.(type) {
	case *corev1.Node:
		if e.Deleted {
			delete(j.present, uid)
		} else {
			j.present[uid] = true
		}
		j.most = max(j.most, len(j.present))
	case *v1alpha1.DaemonSetRollout:
		if !e.Deleted {
			j.stepped(e, o)
		}
	case *corev1.Pod:
		switch {
		case !j.present[uid] && !e.Deleted:
			j.present[uid] = true
			if ownerOf(o) != "" {
				j.created(e, o)
			}
		case (o.DeletionTimestamp != nil || e.Deleted) && !j.ended[uid]:
			j.ended[uid] = true
			if ownerOf(o) != "" {
				j.removed(e, o)
			}
		default:
			j.pointed(e, o)
		}
	}
}

// decision is what the controller can have known when it did something.
type decision struct {
	at    place
	event int64 // the revision of what it did
	since int64 // the revision at which it asked for that, at the earliest
	early int64 // the revision at which it decided, at the earliest
	// specs are those of the DaemonSet that it can have worked on.
	specs []*appsv1.DaemonSet
}

// decide finds that out; ok is false if the DaemonSet is being deleted, and so others do things to its pods too.
func (j *judge) decide(e *Event, p *corev1.Pod) (d decision, ok bool) {
	remove := e.Deleted || p.DeletionTimestamp != nil
	return j.decideAfter(e, p, Call{Delete: remove, Since: j.earliest(p, remove)})
}

// decideAfter does so with the first call of a kind that was made at some revision, or later.
func (j *judge) decideAfter(e *Event, p *corev1.Pod, of Call) (d decision, ok bool) {
	d = decision{at: place{ownerOf(p), daemon.TargetOf(p)}, event: e.Revision, since: e.Revision - lag, early: e.Revision - lag}
	if j.Told {
		i := slices.IndexFunc(j.calls[p.Name], func(c Call) bool {
			return c.Delete == of.Delete && c.Point == of.Point && c.Resize == of.Resize && c.Since >= of.Since &&
				c.Since <= e.Revision // a later one is about another pod of the name
		})
		if i < 0 {
			return d, false
		}
		d.since, d.early = j.calls[p.Name][i].Since, j.calls[p.Name][i].Early
	}
	set := j.tracks[d.at.set]
	if set == nil {
		return d, false
	}
	now, _ := set.At(e.Revision).(*appsv1.DaemonSet)
	if now == nil || now.DeletionTimestamp != nil {
		return d, false
	}
	var observed int64
	if then, _ := set.At(d.since).(*appsv1.DaemonSet); then != nil {
		observed = then.Status.ObservedGeneration
	}
	known := map[int64]bool{}
	for _, o := range set.Between(0, e.Revision) {
		spec := o.(*appsv1.DaemonSet)
		if spec.Generation >= observed && !known[spec.Generation] {
			known[spec.Generation] = true
			d.specs = append(d.specs, spec)
		}
	}
	return d, true
}

// earliest is when a request about the pod can have been made: names return, so one about another pod of the name is
// none. A creation can have been asked for while the pod before it still was.
func (j *judge) earliest(p *corev1.Pod, remove bool) (revision int64) {
	for _, t := range j.lives[p.Name] {
		switch {
		case t.First().GetUID() != p.UID:
			revision = t.Versions[0].From
		case remove:
			return t.Versions[0].From
		default:
			return revision
		}
	}
	return 0
}

func (d decision) any(f func(*appsv1.DaemonSet) bool) bool { return slices.ContainsFunc(d.specs, f) }

// budget is the most that any of the specifications allows.
func (j *judge) budget(d decision) (b wants.Budget) {
	for _, spec := range d.specs {
		one := wants.BudgetOf(spec, j.most)
		b.Unavailable, b.Surge = max(b.Unavailable, one.Unavailable), max(b.Surge, one.Surge)
	}
	return b
}

// seen are the versions of an object that the controller can have had in mind between two revisions.
func (j *judge) seen(uid types.UID, low, high int64) []*corev1.Pod {
	t := j.tracks[uid]
	out := pods(t.Between(low, high))
	sights := j.sees[uid]
	for i, s := range sights {
		if s.At <= high && (i+1 == len(sights) || sights[i+1].At >= low) {
			if o, _ := t.At(s.Version).(*corev1.Pod); o != nil {
				out = append(out, o)
			}
		}
	}
	return out
}

// fits are all the judgements about the place that were right at some moment of a pod's life.
func (j *judge) fits(d decision, low int64) (worst, best wants.Fit) {
	worst, best = wants.ShouldRun, wants.Unfit
	nodes := 0
	for _, t := range j.nodes[d.at.node] {
		if t.Gone != 0 && t.Gone <= d.event {
			worst = wants.Unfit // it was away for a while
		}
		for _, o := range t.Between(low, d.event) {
			nodes++
			for _, spec := range d.specs {
				f := wants.Judge(spec, o.(*corev1.Node))
				worst, best = min(worst, f), max(best, f)
			}
		}
	}
	if nodes == 0 {
		worst = wants.Unfit
	}
	return worst, best
}

// others are the pods of the place, but one, that are there at the revision.
func (j *judge) others(at place, not types.UID, revision int64) (out []*corev1.Pod) {
	for _, t := range j.pods[at] {
		p, _ := t.At(revision).(*corev1.Pod)
		if p != nil && p.UID != not && ownerOf(p) == at.set && daemon.TargetOf(p) == at.node {
			out = append(out, p)
		}
	}
	return out
}

// outdatedFrom is the first revision at which the controller can have found the
// pod outdated; ok is false if it can never have.
func (j *judge) outdatedFrom(d decision, p *corev1.Pod) (from int64, ok bool) {
	set := j.tracks[d.at.set]
	for i, v := range set.Versions {
		spec := v.Object.(*appsv1.DaemonSet)
		if v.From > d.event || markOfSet(spec) == markOf(p) ||
			!slices.ContainsFunc(d.specs, func(s *appsv1.DaemonSet) bool { return s.Generation == spec.Generation }) {
			continue
		}
		from = v.From
		if !j.Told {
			return from - lag, true
		}
		// The answer to a write of its own, the next version, may tell it first.
		next := int64(math.MaxInt64)
		if i+1 < len(set.Versions) {
			next = set.Versions[i+1].From
		}
		for _, s := range j.sees[d.at.set] {
			if s.Version >= v.From && s.Version < next {
				return max(from, min(s.At, next)), true
			}
		}
		return from, true
	}
	return 0, false
}

// surelyAvailable reports whether the controller can but have held the pod for available when it found it outdated.
func (j *judge) surelyAvailable(d decision, p *corev1.Pod, from int64) bool {
	var longest int32
	for _, spec := range d.specs {
		longest = max(longest, spec.Spec.MinReadySeconds)
	}
	for _, v := range j.seen(p.UID, from, d.event-1) {
		since, ready := daemon.ReadySince(v)
		if !ready || v.DeletionTimestamp != nil || daemon.Ended(v) {
			return false
		}
		if longest > 0 && daemon.DeletedAt(p).Sub(since) < time.Duration(longest)*time.Second+slack {
			return false
		}
	}
	return true
}

// slack is what the times in objects, whole seconds, may be wrong by.
const slack = 3 * time.Second

// wasAvailable reports whether the pod can have been held for available at or
// before a revision; now is the time of that revision, zero if unknown.
func (j *judge) wasAvailable(d decision, p *corev1.Pod, revision int64, now time.Time) bool {
	shortest := d.specs[0].Spec.MinReadySeconds
	for _, spec := range d.specs {
		shortest = min(shortest, spec.Spec.MinReadySeconds)
	}
	return slices.ContainsFunc(pods(j.tracks[p.UID].Between(0, revision)), func(v *corev1.Pod) bool {
		since, ready := daemon.ReadySince(v)
		return ready && (shortest == 0 || now.IsZero() || !now.Add(time.Second).Before(since.Add(time.Duration(shortest)*time.Second)))
	})
}

func describe(list []*corev1.Pod) string {
	var out []string
	for _, p := range list {
		text := fmt.Sprintf("%s (template %q, %s", p.Name, wholeOf(p), p.Status.Phase)
		if p.DeletionTimestamp != nil {
			text += ", terminating"
		}
		out = append(out, text+")")
	}
	return strings.Join(out, ", ")
}
