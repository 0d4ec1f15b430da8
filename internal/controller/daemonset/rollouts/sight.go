package rollouts

import (
	"cmp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Sight says why policies and rollouts cannot be read, or their changes not be seen;
// "" while they can. Then nothing new begins for a DaemonSet that is known to follow a
// policy: what is known of it may be over.
type Sight struct{ Policies, Rollouts string }

func (s Sight) lost() bool { return s != Sight{} }

func (b *Book) onSight(s Sight) {
	if b.sight == s {
		return
	}
	b.sight = s
	for _, ds := range b.sets {
		if b.blind[ds.UID] && s.Rollouts == "" {
			// What was decided meanwhile was decided without the rollout.
			delete(b.blind, ds.UID)
			b.rows.Step(fact.RolloutGone(ds.UID))
		}
		b.assign(ds)
	}
}

// known reports whether the DaemonSet follows a policy, as far as can be seen: it did, it
// has a rollout, or its own status says so. Of all others nothing speaks for a policy,
// and they change as they would without any.
func (b *Book) known(ds *appsv1.DaemonSet, had *policy) bool {
	if had != nil {
		return true
	}
	if r := b.rollouts[nameOf(ds)]; r != nil && r.Labels[OwnerLabel] == string(ds.UID) {
		return !b.withoutPolicy(ds)
	}
	for i := range ds.Status.Conditions {
		if c := &ds.Status.Conditions[i]; c.Type == fact.ConditionProgressing &&
			strings.HasPrefix(c.Reason, fact.FollowsPolicy) {
			return true
		}
	}
	return false
}

// standStill has the DaemonSet wait until policies and rollouts can be read.
func (b *Book) standStill(ds *appsv1.DaemonSet, found, had *policy, info *fact.Rollout) {
	info.Following, info.Why = course.Lost, cmp.Or(b.sight.Policies, b.sight.Rollouts)
	if found == nil {
		found = had
	}
	if found != nil {
		b.follows[ds.UID] = found
		info.PolicyUID, info.Policy = found.object.UID, found.compiled
	}
	if _, decided := b.rows.Rollout(ds.UID); b.sight.Rollouts != "" && b.rollouts[nameOf(ds)] == nil &&
		(!decided || b.blind[ds.UID]) {
		b.blind[ds.UID], info.Unread, info.ToldOf = true, true, b.toldOf(ds) != ""
	}
	delete(b.left, nameOf(ds))
	b.rows.Step(*info)
}
