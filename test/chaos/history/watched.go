package history

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/fetches"
	"github.com/everynode/everynode/test/chaos/history/lives"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/told"
	"github.com/everynode/everynode/test/chaos/history/wants"
	"github.com/everynode/everynode/test/chaos/history/waves"
)

// More rules for DaemonSets whose changes follow a policy.
const (
	Soak   = "a step began before the one before it had soaked"
	Pace   = "changes began faster than the pace"
	Placed = "a pod where its template wants none"
	// Unfetched: where nodes fetch images, no daemon of a step is taken away before its nodes have these.
	Unfetched = "taken before its step had the images"
)

// soaked judges a step that began, at the time that the status gives: on each node of the
// steps before it that has the target, this must have been ready for as long as the step
// soaks, but for nodes out of order. Times in objects are whole seconds, and so are the soak times of rounds.
func (j *judge) soaked(e *Event, before, r *v1alpha1.DaemonSetRollout, passed []string, policies []*v1alpha1.RolloutPolicy) {
	if r.Status.StepStarted == nil || len(policies) == 0 {
		return
	}
	low := j.knownSince(e.Revision-lag, slices.Concat(j.policies, j.rollouts[r.Name]))
	set := types.UID(r.Labels[OwnerLabel])
	for name, tracks := range j.nodes {
		step, soak := j.soakOf(tracks, policies, low, e.Revision)
		if !slices.Contains(passed, step) || soak == 0 || told.FailedOn(&before.Status, name) || told.FailedOn(&r.Status, name) ||
			j.faulty(name, low, e.Revision) {
			continue
		}
		if since := j.readyFirst(place{set, name}, j.whole(r.Status.TargetRevision), low, e.Revision); since.Add(soak).After(r.Status.StepStarted.Time) {
			j.report(Soak, e.Revision, []types.UID{r.UID}, "rollout %s began step %s at %s, and node %s of step %s, which soaks for %s, had the target ready since %s",
				r.Name, r.Status.Step, clock(r.Status.StepStarted.Time), name, step, soak, clock(since))
		}
	}
}

// readyFirst is the earliest time since when a pod of the template can have been known as
// ready at a place; zero if none can.
func (j *judge) readyFirst(at place, mark string, low, high int64) (first time.Time) {
	for _, t := range j.pods[at] {
		for _, p := range j.seen(t.First().GetUID(), low, high) {
			if since, ready := daemon.ReadySince(p); ready && has(p, mark) && (first.IsZero() || since.Before(first)) {
				first = since
			}
		}
	}
	return first
}

// soakOf is the step of a node, "" if that is not sure, and how long it soaks at least.
func (j *judge) soakOf(tracks []*track, policies []*v1alpha1.RolloutPolicy, low, high int64) (step string, shortest time.Duration) {
	shortest = time.Hour
	for _, t := range tracks {
		for _, o := range t.Between(low, high) {
			for _, p := range policies {
				at := waves.Of(p, o.(*corev1.Node))
				if len(at) != 1 || step != "" && step != at[0].Name(p) || at[0].Wave == len(p.Spec.Waves) {
					return "", 0
				}
				soak, err := time.ParseDuration(string(p.Spec.Waves[at[0].Wave].Soak))
				if err != nil {
					soak = 0
				}
				step, shortest = at[0].Name(p), min(shortest, soak)
			}
		}
	}
	return step, shortest
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// late is by how much a change may come later than it was begun: writes are held up, and are done once more.
const late = 5 * time.Second

// paced judges when a node's change began: over all DaemonSets of a policy there may be as
// many in any time as its pace allows, and what it had saved up before, for ten seconds at
// most. A new process may begin two at once. A resize has no time, and is not judged.
func (j *judge) paced(d decision, g *guidance, p *corev1.Pod, now time.Time) {
	perMinute := int32(0)
	for _, policy := range g.policies {
		n := policy.Spec.Pace.NodesPerMinute
		if n == nil || policy.UID != g.policies[0].UID {
			return
		}
		perMinute = max(perMinute, *n)
	}
	if len(g.policies) == 0 || now.IsZero() {
		return
	}
	uid := g.policies[0].UID
	j.begun[uid] = append(j.begun[uid], now)
	for _, first := range j.begun[uid] {
		n := 0
		for _, t := range j.begun[uid] {
			if !t.Before(first) && !t.After(now) {
				n++
			}
		}
		passed := now.Sub(first) + late
		if most := int(float64(perMinute)*(passed.Minutes()+(10*time.Second).Minutes())) + 3; n > most {
			j.report(Pace, d.event, g.concerned(d, p.UID), "node %s was changed (pod %s), the %d. of policy %s in %s; %d in a minute are allowed",
				d.at.node, p.Name, n, g.policies[0].Name, now.Sub(first), perMinute)
			j.begun[uid] = nil
			return
		}
	}
}

// templateOf is a DaemonSet that has the template, nil if none had.
func (j *judge) templateOf(set types.UID, mark string) *appsv1.DaemonSet {
	for _, v := range j.tracks[set].Versions {
		if d := v.Object.(*appsv1.DaemonSet); markOfSet(d) == mark {
			return d
		}
	}
	return nil
}

// wants reports whether the pod's own template wanted it on its node always since a revision, or never.
func (j *judge) wants(d decision, p *corev1.Pod, low int64) (always, never bool) {
	template := j.templateOf(d.at.set, markOf(p))
	if template == nil {
		return false, false
	}
	always, never = true, true
	known := false
	for _, t := range j.nodes[d.at.node] {
		always = always && (t.Gone == 0 || t.Gone > d.event)
		for _, o := range t.Between(low, d.event) {
			known = true
			wants := wants.Judge(template, o.(*corev1.Node)) == wants.ShouldRun
			always, never = always && wants, never && !wants
		}
	}
	return always && known, never && known
}

// restart is how many revisions a server writes within the second after it has restarted, in which events can be late.
const restart = 1000

// placed judges where a pod was made. What a controller in another process was told of a node is not known.
func (j *judge) placed(d decision, p *corev1.Pod) {
	low := j.knownSince(d.early-lag, j.nodes[d.at.node])
	if !j.Told {
		low -= restart
	}
	if _, never := j.wants(d, p, low); never {
		j.report(Placed, d.event, uids(d, p), "pod %s was made on node %s, which its template %q does not select", p.Name, d.at.node, markOf(p))
	}
}

// leaves judges the end of a pod where some template that can have been the newest wants
// none: where the pod's own does, that waits for the node's turn as every other change.
func (j *judge) leaves(d decision, p *corev1.Pod, life int64) {
	if len(j.policies) == 0 || d.any(wants.Surges) {
		return
	}
	g := j.guidanceOf(d)
	if g == nil || g.mixed() || slices.ContainsFunc(j.seen(p.UID, life, d.event), daemon.Ended) || j.crowded(d, p, life) {
		return
	}
	if always, _ := j.wants(d, p, life-lag); !always || !j.surelyAvailable(d, p, d.early) {
		return
	}
	j.takenUnderPolicy(d, g, p, false, daemon.DeletedAt(p))
	delete(j.taken, d.at)
	j.leaving[d.at] = p.UID
}

// departs is the node of a name if the template takes the daemon away from it that it had
// of late; left tells that it did.
func (j *judge) departs(name string, d decision, mark string) (node *corev1.Node, left bool) {
	of, _ := revision.Split(mark)
	template := j.templateOf(d.at.set, of)
	if template == nil {
		return nil, false
	}
	for _, t := range j.nodes[name] {
		if n, _ := t.At(d.event).(*corev1.Node); n != nil && wants.Judge(template, n) == wants.Unfit {
			node = n
		}
	}
	had := false
	for _, t := range j.pods[place{d.at.set, name}] {
		had = had || len(t.Between(d.early-lag, d.event)) > 0 && (t.Gone == 0 || t.Gone > d.early-lag)
		if p, _ := t.At(d.event).(*corev1.Pod); p != nil && p.DeletionTimestamp == nil && !daemon.Ended(p) {
			return node, false
		}
	}
	if !had {
		return nil, false
	}
	return node, true
}

// stillLeaving reports whether a pod that was taken away from a place is not gone yet.
func (j *judge) stillLeaving(at place, revision int64) bool {
	t := j.tracks[j.leaving[at]]
	return t != nil && t.At(revision) != nil
}

// written is how many revisions may pass from a decision until the status tells of it.
const written = 60

// fetchedFirst judges that of a daemon that was taken away for the target of the change under way.
func (j *judge) fetchedFirst(d decision, g *guidance, p *corev1.Pod, now time.Time) {
	t := fetches.Take{Second: now, Policies: g.policies, Sets: d.specs, Rollouts: slices.Concat(g.rollouts, g.written)}
	t.Place = j.withPulls(d, fetches.Place{Name: d.at.node, Pods: j.seen(p.UID, d.early, d.event-1)})
	t.Nodes, t.Life = j.nodeOf(d, j.knownSince(d.early, j.nodes[d.at.node])), j.nodeOf(d, j.tracks[p.UID].Versions[0].From-lag)
	began, of := g.low, &t.Rollouts[0].Status
	for _, o := range j.tracks[t.Rollouts[0].UID].Between(0, d.event) {
		r := o.(*v1alpha1.DaemonSetRollout)
		if r.Status.TargetRevision == of.TargetRevision && r.Status.Change == of.Change {
			t.Change = append(t.Change, r)
		}
	}
	if len(t.Change) > 0 {
		began = min(began, j.tracks[t.Rollouts[0].UID].Since(t.Change[0]))
	}
	if j.Told { // its sights tell how late it was
		began -= written
	} else {
		began -= lag
	}
	t.Steady = len(lives.Moments(j.knownSince(began, j.policies), d.event, j.policies)) == 1
	var others []fetches.Place
	for name := range j.nodes {
		o := decision{at: place{d.at.set, name}, event: d.event}
		if low := j.knownSince(began, j.nodes[name]); !j.faulty(name, low, d.event) {
			at := fetches.Place{Name: name, Nodes: j.nodeOf(o, low), Pods: j.daemonsOf(o, began)}
			others = append(others, j.withPulls(o, at))
		}
	}
	is := t.Judge(others)
	if is.Fetched {
		j.fetched++
	}
	if is.Why != "" {
		j.report(Unfetched, d.event, g.concerned(d, p.UID), "%s: %s", is.Why, j.tell(g))
	}
}

// withPulls adds the pods that have pulled images for its daemon so far.
func (j *judge) withPulls(d decision, of fetches.Place) fetches.Place {
	if len(of.Pods) > 0 {
		for _, t := range j.pulls[of.Pods[0].UID] {
			of.Pulls = append(of.Pulls, pods(t.Between(0, d.event))...)
		}
	}
	return of
}

// daemonsOf are the versions of the daemons of a place that can have been known since a revision; none where the
// controller had not heard of one by then, or it was taken out of the DaemonSet.
func (j *judge) daemonsOf(of decision, since int64) (out []*corev1.Pod) {
	heard := func(s Sight) bool { return s.At <= since }
	left := func(p *corev1.Pod) bool { return ownerOf(p) != of.at.set }
	for _, t := range j.pods[of.at] {
		uid := t.First().GetUID()
		over := func(s Sight) bool { return s.UID == uid && s.At <= since && (s.Version > 0 || s.At >= t.Gone) }
		if t.Gone != 0 && slices.ContainsFunc(j.Ends, over) {
			continue
		}
		list := j.seen(uid, since, of.event)
		if slices.ContainsFunc(list, left) || j.Told && len(list) > 0 && !slices.ContainsFunc(j.sees[uid], heard) {
			return nil
		}
		out = append(out, list...)
	}
	return out
}
