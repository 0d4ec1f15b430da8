package rollouts

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/approval"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/objects/objectversion"
)

// OwnerLabel is the label of a rollout with the UID of its DaemonSet.
const OwnerLabel = "everynode.io/daemonset-uid"

// Rows is what a Book tells and asks of a matrix.
type Rows interface {
	Step(e matrix.Event)
	Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool)
	// Keeps reports whether copies of content of a DaemonSet are there, or may be.
	Keeps(uid types.UID) bool
	// Left says why copies stay that nobody needs; "" where none does.
	Left(uid types.UID) string
}

// Book holds DaemonSets, policies and rollouts.
type Book struct {
	rows     Rows
	locate   rolloutpolicy.Locate
	now      time.Time
	sets     map[types.NamespacedName]*appsv1.DaemonSet
	rollouts map[types.NamespacedName]*v1alpha1.DaemonSetRollout
	// ended are the last rollouts of the DaemonSets here that went: the answer to an earlier write may come later.
	ended    map[types.NamespacedName]types.UID
	policies map[string]map[types.UID]*policy // by namespace
	// follows is the policy that counts for a DaemonSet, by the DaemonSet's UID.
	follows map[types.UID]*policy
	// changed are namespaces in which the statuses of policies may be another now,
	// left the rollouts without a DaemonSet.
	changed map[string]bool
	left    map[types.NamespacedName]bool
	// sight is what cannot be read. blind are DaemonSets whose rollout was not known when
	// they were told to stand still for that.
	sight Sight
	blind map[types.UID]bool
	// erased says of DaemonSets whose rollout was deleted in the middle of a change why
	// the next one is to be paused.
	erased map[types.UID]string
	// missing are rollouts that the API did not have when they were written, since when, and of whose end no news came.
	missing map[types.UID]time.Time
	// free are DaemonSets that have left their policy, until one selects them again: what
	// they change meanwhile is theirs.
	free  map[types.UID]bool
	tasks map[types.UID]*task
	// Guest tells that another controller makes the pods. A DaemonSet follows a policy only while it is stored with
	// OnDelete for that: until then the other controller replaces its pods.
	Guest bool
}

// policy is one RolloutPolicy, compiled.
type policy struct {
	object   *v1alpha1.RolloutPolicy
	compiled *rolloutpolicy.Policy
	err      error
}

// New returns an empty book.
func New(rows Rows, locate rolloutpolicy.Locate) *Book {
	return &Book{
		rows: rows, locate: locate,
		sets:     map[types.NamespacedName]*appsv1.DaemonSet{},
		rollouts: map[types.NamespacedName]*v1alpha1.DaemonSetRollout{},
		ended:    map[types.NamespacedName]types.UID{},
		policies: map[string]map[types.UID]*policy{},
		follows:  map[types.UID]*policy{},
		changed:  map[string]bool{},
		left:     map[types.NamespacedName]bool{},
		blind:    map[types.UID]bool{},
		erased:   map[types.UID]string{},
		missing:  map[types.UID]time.Time{},
		free:     map[types.UID]bool{},
		tasks:    map[types.UID]*task{},
	}
}

// Event is what a Book is told: an object, the time, or what became of a job.
type Event interface{ event() }

// DaemonSet is a DaemonSet as it is now, or gone.
type DaemonSet struct {
	Object *appsv1.DaemonSet
	Gone   bool
}

// Policy is a policy as it is now, or gone.
type Policy struct {
	Object *v1alpha1.RolloutPolicy
	Gone   bool
}

// Rollout is a rollout as it is now, or gone.
type Rollout struct {
	Object *v1alpha1.DaemonSetRollout
	Gone   bool
}

// Now says what time it is.
type Now struct{ time.Time }

func (DaemonSet) event() {}
func (Sight) event()     {}
func (Policy) event()    {}
func (Rollout) event()   {}
func (Now) event()       {}
func (Result) event()    {}

// Step takes an event in.
func (b *Book) Step(e Event) {
	switch e := e.(type) {
	case DaemonSet:
		b.onDaemonSet(e)
	case Policy:
		b.onPolicy(e)
	case Rollout:
		b.onRollout(e)
	case Written:
		b.onWritten(e)
	case Sight:
		b.onSight(e)
	case Now:
		b.now = e.Time
	case Result:
		b.onResult(e)
	}
}

// RolloutOf returns the rollout of a DaemonSet as it was last seen; nil if there is none.
func (b *Book) RolloutOf(ds *appsv1.DaemonSet) *v1alpha1.DaemonSetRollout {
	return b.rollouts[nameOf(ds)]
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (b *Book) onDaemonSet(e DaemonSet) {
	name := nameOf(e.Object)
	have := b.sets[name]
	switch {
	case e.Gone && (have == nil || have.UID != e.Object.UID):
		delete(b.follows, e.Object.UID)
	case e.Gone:
		delete(b.sets, name)
		delete(b.ended, name)
		delete(b.blind, e.Object.UID)
		delete(b.erased, e.Object.UID)
		delete(b.follows, e.Object.UID)
		delete(b.free, e.Object.UID)
		b.left[name] = true
		b.changed[name.Namespace] = true
	case have != nil && have.UID == e.Object.UID && older(e.Object, have):
	default:
		b.sets[name] = e.Object
		if have == nil || have.UID != e.Object.UID || have.Generation != e.Object.Generation || !sameLabels(have, e.Object) {
			delete(b.left, name)
			b.assign(e.Object)
		}
	}
}

func sameLabels(a, b *appsv1.DaemonSet) bool { return labels.Equals(a.Labels, b.Labels) }

func (b *Book) onPolicy(e Policy) {
	ns, uid := e.Object.Namespace, e.Object.UID
	have := b.policies[ns][uid]
	switch {
	case e.Gone:
		delete(b.policies[ns], uid)
		delete(b.tasks, uid)
	case have != nil && older(e.Object, have.object):
		return
	case have != nil && have.object.Generation == e.Object.Generation &&
		newer.Fields(have.object) == newer.Fields(e.Object):
		have.object = e.Object
		b.changed[ns] = true
		return
	default:
		if b.policies[ns] == nil {
			b.policies[ns] = map[types.UID]*policy{}
		}
		b.policies[ns][uid] = b.compile(e.Object)
	}
	for name, ds := range b.sets {
		if name.Namespace == ns {
			b.assign(ds)
		}
	}
	b.changed[ns] = true
}

func (b *Book) compile(object *v1alpha1.RolloutPolicy) *policy {
	p := &policy{object: object}
	p.compiled, p.err = rolloutpolicy.Follow(object, b.locate)
	return p
}

func (b *Book) onRollout(e Rollout) {
	name := nameOf(e.Object)
	have := b.rollouts[name]
	delete(b.missing, e.Object.UID)
	if b.comesLate(e) {
		return
	}
	switch {
	case e.Gone && (have == nil || have.UID != e.Object.UID):
		return
	case e.Gone:
		delete(b.rollouts, name)
		delete(b.tasks, e.Object.UID)
		delete(b.left, name)
		if older(have, e.Object) { // an end tells of the last write, and the news of that write may not have come
			have = e.Object
		}
		b.erase(have)
	case have != nil && have.UID == e.Object.UID && older(e.Object, have):
		return
	default:
		b.rollouts[name] = e.Object
		delete(b.ended, name)
		if ds := b.sets[name]; ds != nil {
			delete(b.erased, ds.UID)
		}
	}
	if ds := b.sets[name]; ds != nil {
		b.assign(ds)
	} else if !e.Gone {
		b.left[name] = true
	}
}

// comesLate reports whether the event tells of a rollout that has gone since, and keeps those that go.
func (b *Book) comesLate(e Rollout) bool {
	name := nameOf(e.Object)
	if e.Gone {
		if b.sets[name] != nil {
			b.ended[name] = e.Object.UID
		}
		return false
	}
	ended, known := b.ended[name]
	return known && ended == e.Object.UID
}

// chosen is the policy that counts for the DaemonSet; nil if there is none.
func (b *Book) chosen(ds *appsv1.DaemonSet) *policy {
	all := b.policies[ds.Namespace]
	objects := make([]*v1alpha1.RolloutPolicy, 0, len(all))
	for _, p := range all {
		objects = append(objects, p.object)
	}
	if p := rolloutpolicy.Choose(objects, ds.Namespace, ds.Labels); p != nil {
		return all[p.UID]
	}
	return nil
}

func onDelete(ds *appsv1.DaemonSet) bool {
	return ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
}

// assign tells the matrix what the DaemonSet's changes follow.
func (b *Book) assign(ds *appsv1.DaemonSet) {
	b.changed[ds.Namespace] = true
	found := b.chosen(ds)
	had := b.follows[ds.UID]
	delete(b.follows, ds.UID)
	switch {
	case onDelete(ds):
		b.rows.Step(fact.RolloutGone(ds.UID))
		b.left[nameOf(ds)] = true
		return
	case b.Guest && !admit.Taken(ds):
		b.unfollow(ds)
		return
	}
	info := b.stored(ds, found)
	switch {
	case b.sight.lost() && (found != nil || b.known(ds, had)):
		b.standStill(ds, found, had, &info)
	case b.isNewer(ds, found, &info):
		b.holdNewer(ds, found, &info)
	case found != nil && found.err != nil:
		b.follows[ds.UID] = found
		info.PolicyUID, info.Following = found.object.UID, course.Lost
		info.Why = "policy " + found.object.Name + " cannot be followed: " + found.err.Error()
	case found != nil:
		b.follows[ds.UID] = found
		info.PolicyUID, info.Policy, info.PolicyGeneration = found.object.UID, found.compiled, b.generationOf(found)
	case b.inTheMiddle(ds, &info):
		info.Following, info.Why = course.Gone, b.goneWhy(ds, &info)
		if had != nil {
			info.PolicyUID = had.object.UID
		}
	default:
		b.unfollow(ds)
		return
	}
	delete(b.left, nameOf(ds))
	delete(b.free, ds.UID)
	info.Followed = b.followed(ds)
	b.rows.Step(info)
}

// generationOf is a policy's generation, where replicas answer by what is written of its steps; 0 where none does.
func (b *Book) generationOf(p *policy) int64 {
	if !b.Guest {
		return 0
	}
	return p.object.Generation
}

// stored is what the rollout of the DaemonSet says.
func (b *Book) stored(ds *appsv1.DaemonSet, found *policy) fact.Rollout {
	info := fact.Rollout{UID: ds.UID}
	if r := b.rollouts[nameOf(ds)]; r != nil {
		info.Generation, info.Spec, info.Status = r.Generation, r.Spec, statusFor(ds, r)
		info.PausedWhy, info.Newer = pausedBecause(r), newer.Check(r) != nil
		info.Unread = info.Newer && r.Status.TargetRevision == "" // this program may not know what stands in its place
	} else if why := b.wasErased(ds, found); why != "" {
		info.Spec.Paused, info.PausedWhy = true, why
	}
	return info
}

// isNewer reports whether the DaemonSet goes by a rollout that a newer program has written.
func (b *Book) isNewer(ds *appsv1.DaemonSet, found *policy, info *fact.Rollout) bool {
	return info.Newer && (found != nil || b.inTheMiddle(ds, info))
}

// holdNewer has the DaemonSet wait whose rollout a newer program has written: nobody here knows all that it says.
func (b *Book) holdNewer(ds *appsv1.DaemonSet, found *policy, info *fact.Rollout) {
	info.Following = course.Lost
	info.Why = "its DaemonSetRollout cannot be followed: " + newer.Check(b.rollouts[nameOf(ds)]).Error()
	if found != nil {
		b.follows[ds.UID] = found
		info.PolicyUID, info.Policy = found.object.UID, found.compiled
	}
}

// followed is the policy that the DaemonSet follows, or followed last by its rollout's status.
func (b *Book) followed(ds *appsv1.DaemonSet) (out *v1alpha1.FollowedPolicy) {
	r, p := b.rollouts[nameOf(ds)], b.follows[ds.UID]
	switch {
	case p != nil:
		out = &v1alpha1.FollowedPolicy{Name: p.object.Name, UID: p.object.UID}
		for i := range p.object.Spec.Waves {
			if p.object.Spec.Waves[i].Approval == v1alpha1.ApprovalManual {
				out.Approval = v1alpha1.ApprovalManual
			}
		}
		if r != nil {
			out.SpecGeneration = r.Generation
		}
	case r != nil:
		out = r.Status.Policy
	}
	return out
}

// unfollow has the DaemonSet change as without a policy.
func (b *Book) unfollow(ds *appsv1.DaemonSet) {
	b.rows.Step(fact.RolloutGone(ds.UID))
	if b.rollouts[nameOf(ds)] != nil {
		b.left[nameOf(ds)], b.free[ds.UID] = true, true
	}
}

// inTheMiddle reports whether a change of the DaemonSet is under way that nobody lets
// go on without a policy. A spec that the rollout does not speak of yet may be such a
// change, made by the same write that takes the DaemonSet out of its policy. Nobody lets
// a revision go on that has failed: what failed under a policy goes out again only under one.
func (b *Book) inTheMiddle(ds *appsv1.DaemonSet, info *fact.Rollout) bool {
	status, known := b.stands(ds, info)
	if !known || b.withoutPolicy(ds) {
		return !known && info.PausedWhy != "" // where that stood is lost with it
	}
	if s := info.Status; s != nil && s.DaemonSetGeneration > 0 && s.DaemonSetGeneration < ds.Generation {
		return true
	}
	if !underWay(status) {
		return false
	}
	a, _ := approval.Given(&info.Spec, status)
	return TargetFailed(status) || a == nil || a.Step != v1alpha1.WithoutPolicy
}

// stands is where the rollout of a DaemonSet stands; false if there is none.
func (b *Book) stands(ds *appsv1.DaemonSet, info *fact.Rollout) (*v1alpha1.DaemonSetRolloutStatus, bool) {
	if status, known := b.rows.Rollout(ds.UID); known {
		return &status, true
	}
	if info.Status == nil || info.Status.TargetRevision == "" {
		return nil, false
	}
	return info.Status, true
}

// withoutPolicy reports whether the DaemonSet has left its policy: what it changes since is its own.
func (b *Book) withoutPolicy(ds *appsv1.DaemonSet) bool {
	r := b.rollouts[nameOf(ds)]
	return b.free[ds.UID] || r != nil && meta.IsStatusConditionTrue(r.Status.Conditions, PolicyGone)
}

// TargetFailed reports whether the target of a rollout has failed.
func TargetFailed(s *v1alpha1.DaemonSetRolloutStatus) bool {
	return slices.ContainsFunc(s.FailedRevisions,
		func(f v1alpha1.FailedRevision) bool { return f.Revision == s.TargetRevision })
}

// goneWhy says why a change stands still whose policy is gone, and what lets it go on.
func (b *Book) goneWhy(ds *appsv1.DaemonSet, info *fact.Rollout) string {
	what := "its policy was deleted"
	if len(b.policies[ds.Namespace]) > 0 {
		what = "no policy selects it any more"
	}
	status, known := b.stands(ds, info)
	if known && TargetFailed(status) {
		return what + ", and revision " + status.TargetRevision +
			" has failed; change the template, make another policy, or retry it and approve step " + v1alpha1.WithoutPolicy
	}
	void := ""
	if known {
		_, void = approval.Given(&info.Spec, status)
	}
	return what + "; approve step " + v1alpha1.WithoutPolicy + " to go on without one, or make another" + void
}

// statusFor is what a rollout's status says about the DaemonSet. Of one that had the name before, and of a time
// without a policy, only the failed revisions are left, and the number of its last change: none comes again.
func statusFor(ds *appsv1.DaemonSet, r *v1alpha1.DaemonSetRollout) *v1alpha1.DaemonSetRolloutStatus {
	if r.Labels[OwnerLabel] == string(ds.UID) && !meta.IsStatusConditionTrue(r.Status.Conditions, PolicyGone) {
		return &r.Status
	}
	return &v1alpha1.DaemonSetRolloutStatus{
		FailedRevisions: r.Status.FailedRevisions, EarlierFailures: r.Status.EarlierFailures,
		ForgottenFailures: r.Status.ForgottenFailures, Change: r.Status.Change, Approved: r.Status.Approved,
	}
}

// older reports whether have is a later version of the object than obj. Versions that
// cannot be compared are taken in the order in which they come.
func older(obj, have metav1.Object) bool {
	return objectversion.Older(obj.GetResourceVersion(), have.GetResourceVersion())
}
