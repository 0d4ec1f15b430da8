package rollouts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// The conditions of a policy, and that of a rollout without its DaemonSet.
const (
	// Valid is False with a policy that cannot be followed.
	Valid = "Valid"
	// Matched is True when a DaemonSet follows the policy.
	Matched = "Matched"
	// PassedOver is True when a DaemonSet that the policy chooses does not follow it.
	PassedOver = "PassedOver"
	// DaemonSetGone is True when the rollout has outlived its DaemonSet.
	DaemonSetGone = "DaemonSetGone"
	// PolicyGone is True while a rollout whose DaemonSet follows no policy any more is kept for what
	// people wrote into it, or for what has failed.
	PolicyGone = "PolicyGone"
)

// kept is how long a rollout is kept without its DaemonSet.
const kept = 24 * time.Hour

// matchedNames is how many DaemonSets a policy's status names.
const matchedNames = 20

// Job is something to write: exactly one of its fields.
type Job struct {
	// Policy gets the status that is in it.
	Policy *v1alpha1.RolloutPolicy
	// Left gets the status that is in it: its DaemonSet is gone, or follows it no more.
	Left *v1alpha1.DaemonSetRollout
	// Delete is a rollout that nobody needs any more.
	Delete *v1alpha1.DaemonSetRollout
}

func (j *Job) object() metav1.Object {
	switch {
	case j.Policy != nil:
		return j.Policy
	case j.Left != nil:
		return j.Left
	}
	return j.Delete
}

// Over is the rollout that the job is about if nothing follows it any more, else nil.
func (j *Job) Over() *v1alpha1.DaemonSetRollout {
	if j.Left != nil && meta.IsStatusConditionTrue(j.Left.Status.Conditions, PolicyGone) {
		return j.Left
	}
	return j.Delete
}

// Result is what became of a job.
type Result struct {
	Job    *Job
	Failed bool
	// Policy or Rollout is what the API holds now; nil if nothing was written.
	Policy  *v1alpha1.RolloutPolicy
	Rollout *v1alpha1.DaemonSetRollout
}

// task is what was tried for an object.
type task struct {
	busy     bool
	failures int
	retryAt  time.Time
}

// Jobs returns what is to be done now, each once: it is under way until its result
// is told.
func (b *Book) Jobs() (out []*Job) {
	for _, ns := range sortedKeys(b.changed, strings.Compare) {
		jobs, again := b.policyStatuses(ns)
		if out = append(out, jobs...); !again {
			delete(b.changed, ns)
		}
	}
	for _, name := range sortedKeys(b.left, func(x, y types.NamespacedName) int {
		return cmp.Compare(x.String(),
			y.String())
	}) {
		if job := b.leftover(name); job != nil && b.begin(job) {
			out = append(out, job)
		}
	}
	return out
}

func sortedKeys[K comparable](m map[K]bool, compare func(a, b K) int) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, compare)
	return out
}

// begin reports whether the job may begin now.
func (b *Book) begin(j *Job) bool {
	t := b.tasks[j.object().GetUID()]
	if t == nil {
		t = &task{}
		b.tasks[j.object().GetUID()] = t
	}
	if t.busy || t.retryAt.After(b.now) {
		return false
	}
	t.busy = true
	return true
}

func (b *Book) onResult(r Result) {
	uid := r.Job.object().GetUID()
	t := b.tasks[uid]
	if t == nil {
		return
	}
	if r.Job.Policy != nil {
		b.changed[r.Job.Policy.Namespace] = true
	}
	t.busy = false
	if !r.Failed {
		delete(b.tasks, uid)
		b.written(r)
		return
	}
	t.failures++
	t.retryAt = b.now.Add(min(100*time.Millisecond<<min(t.failures, 12), time.Minute))
}

// written takes in what the API holds now, before the watch tells of it.
func (b *Book) written(r Result) {
	switch {
	case r.Policy != nil:
		if p := b.policies[r.Policy.Namespace][r.Policy.UID]; p != nil && !older(r.Policy, p.object) {
			b.onPolicy(Policy{Object: r.Policy})
		}
	case r.Rollout != nil:
		b.onRollout(Rollout{Object: r.Rollout})
	case r.Job.Delete != nil:
		b.onRollout(Rollout{Object: r.Job.Delete, Gone: true})
	}
}

// NextTick returns when there is something to do by time alone, if ever.
func (b *Book) NextTick() (at time.Time, ok bool) {
	sooner := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	for _, t := range b.tasks {
		if !t.busy && !t.retryAt.IsZero() {
			sooner(t.retryAt)
		}
	}
	for name := range b.left {
		if r, ds := b.rollouts[name], b.sets[name]; r != nil && (ds == nil || !b.rows.Keeps(ds.UID)) {
			for _, condition := range []string{DaemonSetGone, PolicyGone} {
				if c := meta.FindStatusCondition(r.Status.Conditions, condition); c != nil &&
					c.Status == metav1.ConditionTrue {
					sooner(c.LastTransitionTime.Add(kept))
				}
			}
		}
	}
	return at, ok
}

// leftover is what to do about a rollout that nobody follows.
func (b *Book) leftover(name types.NamespacedName) *Job {
	r, ds := b.rollouts[name], b.sets[name]
	switch {
	case r == nil || r.DeletionTimestamp != nil, newer.Check(r) != nil: // what a newer one knows of it is not ours to end
		delete(b.left, name)
		return nil
	case ds == nil || r.Labels[OwnerLabel] != string(ds.UID):
		return b.keep(r, DaemonSetGone, "Deleted", false, "",
			"the DaemonSet is gone; its failed revisions are remembered for a day")
	case onDelete(ds):
		return b.ignored(name, r) // what has failed is still worth to know
	}
	copies, why := b.rows.Keeps(ds.UID), b.rows.Left(ds.UID)
	switch {
	case remembers(r):
		return b.keep(r, PolicyGone, "NoPolicy", copies, why,
			"no policy selects the DaemonSet; what failed, and a pause, are remembered for a day")
	case copies:
		return b.keep(r, PolicyGone, "NoPolicy", copies, why,
			"no policy selects the DaemonSet; copies of its content are still there")
	}
	return &Job{Delete: r} // it follows no policy any more
}

// remembers reports whether a rollout holds what must outlive its policy: taking a label off and putting it back
// would otherwise be a way to have a failed revision forgotten, or to end a pause.
func remembers(r *v1alpha1.DaemonSetRollout) bool {
	s := &r.Status
	return r.Spec.Paused || len(s.FailedRevisions) > 0 || len(s.EarlierFailures) > 0 || s.ForgottenFailures > 0
}

// keep has a rollout say in a condition why it is left over, and deletes it a day later. For as long as there may be
// copies it stays, and speaks of content, so that a controller that starts looks for them; why says what keeps them.
func (b *Book) keep(r *v1alpha1.DaemonSetRollout, condition, reason string, copies bool, why, message string) *Job {
	c := meta.FindStatusCondition(r.Status.Conditions, condition)
	switch {
	case c == nil || c.Status != metav1.ConditionTrue || r.Status.ObservedGeneration != r.Generation,
		r.Status.Content != nil && (!copies || r.Status.Content.Leftover != why):
		next := r.DeepCopy()
		if !copies {
			next.Status.Content = nil
		} else if next.Status.Content != nil {
			next.Status.Content.Leftover = why
		}
		next.Status.Message = message
		next.Status.ObservedGeneration = r.Generation // what people write is seen, and changes nothing
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: r.Generation,
			LastTransitionTime: metav1.NewTime(b.now), Message: message,
		})
		return &Job{Left: next}
	case !copies && !c.LastTransitionTime.Add(kept).After(b.now):
		return &Job{Delete: r}
	}
	return nil
}

// ignored has a rollout say that nothing follows it. An abort counts as unseen: it is heard when the change goes on.
func (b *Book) ignored(name types.NamespacedName, r *v1alpha1.DaemonSetRollout) *Job {
	why, seen := "the DaemonSet has updateStrategy OnDelete: no policy and no rollout changes its nodes, and a pod that "+
		"somebody deletes comes back with the newest template", r.Generation
	if r.Spec.Abort != nil && r.Spec.Abort.Revision == r.Status.TargetRevision &&
		r.Status.ObservedGeneration < r.Generation {
		why, seen = why+"; with RollingUpdate it is aborted", r.Status.ObservedGeneration
	}
	if r.Status.Message == why && r.Status.ObservedGeneration == seen {
		delete(b.left, name)
		return nil
	}
	next := r.DeepCopy()
	next.Status.Message, next.Status.ObservedGeneration = why, seen
	next.Status.Conditions = Conditions(&next.Status, r.Status.Conditions, b.now)
	return &Job{Left: next}
}

// policyStatuses are the namespace's policies whose status is another now. Again tells
// that some must be looked at once more.
func (b *Book) policyStatuses(ns string) (out []*Job, again bool) {
	if len(b.policies[ns]) == 0 {
		return nil, false
	}
	sets := b.setsIn(ns)
	for _, p := range b.policies[ns] {
		next := b.statusOf(p, sets)
		if newer.Check(p.object) != nil { // who writes its status would lose what it holds
			continue
		}
		if apiequality.Semantic.DeepEqual(next, &p.object.Status) {
			continue
		}
		object := p.object.DeepCopy()
		object.Status = *next
		job := &Job{Policy: object}
		if !b.begin(job) {
			again = true
			continue
		}
		out = append(out, job)
	}
	return out, again
}

func (b *Book) setsIn(ns string) (out []*appsv1.DaemonSet) {
	for name, ds := range b.sets {
		if name.Namespace == ns {
			out = append(out, ds)
		}
	}
	slices.SortFunc(out, func(x, y *appsv1.DaemonSet) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

func (b *Book) statusOf(p *policy, sets []*appsv1.DaemonSet) *v1alpha1.RolloutPolicyStatus {
	out := p.object.Status.DeepCopy()
	out.ObservedGeneration, out.Matched, out.MatchedCount = p.object.Generation, nil, 0
	var others []string
	reason := ""
	for _, ds := range sets {
		switch follows := b.follows[ds.UID]; {
		case !rolloutpolicy.Selects(p.object, ds.Labels):
		case onDelete(ds):
			reason = cmp.Or(reason, "OnDelete")
			others = append(others, "DaemonSet "+ds.Name+" has updateStrategy OnDelete, which a policy does not change")
		case b.Guest && !admit.Taken(ds):
			reason = cmp.Or(reason, "NotTakenOver")
			others = append(others,
				"DaemonSet "+ds.Name+" is not stored with OnDelete yet, so its pods change as without a policy")
		case follows == p:
			out.MatchedCount++
			if out.MatchedCount <= matchedNames {
				out.Matched = append(out.Matched, ds.Name)
			}
		case follows != nil:
			reason = cmp.Or(reason, "OlderPolicy")
			others = append(others, "DaemonSet "+ds.Name+" follows policy "+follows.object.Name+", which is older")
		}
	}
	set := func(kind string, is bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: p.object.Generation, LastTransitionTime: metav1.NewTime(b.now)}
		if is {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&out.Conditions, c)
	}
	if p.err != nil {
		set(Valid, false, "CannotBeFollowed", cut("nothing new begins: "+p.err.Error()))
	} else {
		set(Valid, true, "Valid", "")
	}
	if out.MatchedCount > 0 {
		set(Matched, true, "DaemonSetsFollow", fmt.Sprintf("%d DaemonSets of the namespace follow the policy",
			out.MatchedCount))
	} else {
		set(Matched, false, "NoDaemonSet",
			"no DaemonSet of the namespace follows the policy: look at spec.selector and at their labels")
	}
	if len(others) > 0 {
		more := ""
		if n := len(others) - 3; n > 0 {
			others, more = others[:3], fmt.Sprintf("; and %d more", n)
		}
		set(PassedOver, true, reason, cut(strings.Join(others, "; ")+more))
	} else {
		set(PassedOver, false, "None", "")
	}
	return out
}

// cut keeps a message within what a condition may have. It ends with a whole letter: of half of one the API would keep
// another text, and the status would be written again and again.
func cut(s string) string {
	const most = 1024
	return plaintext.Cut(s, most, "")
}
