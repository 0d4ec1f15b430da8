package course

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// So many failed revisions are remembered with what happened, and so many more by name.
const (
	keptFailures = 10
	keptEarlier  = 200
)

// memory is which revisions have failed. None of them goes out again unasked. The oldest are
// forgotten, and only counted: a revision that nobody knows is a new one.
type memory struct {
	failed    []v1alpha1.FailedRevision
	earlier   []string
	forgotten int32
}

// add remembers one, and forgets about the others what there is no room for.
func (m *memory) add(f v1alpha1.FailedRevision) {
	m.failed = append(slices.Clone(m.failed), f)
	if len(m.failed) > keptFailures {
		m.earlier = append(slices.Clone(m.earlier), m.failed[0].Revision)
		m.failed = m.failed[1:]
	}
	if len(m.earlier) > keptEarlier {
		m.earlier = m.earlier[1:]
		m.forgotten++
	}
}

// drop forgets one that is tried again.
func (m *memory) drop(revision string) {
	m.failed = slices.DeleteFunc(slices.Clone(m.failed), func(f v1alpha1.FailedRevision) bool { return f.Revision == revision })
	m.earlier = slices.DeleteFunc(slices.Clone(m.earlier), func(r string) bool { return r == revision })
}

// refusal says why a revision that nobody knows more about is not to go out unasked; "" if
// it may.
func (m *memory) refusal(revision string) string {
	if slices.Contains(m.earlier, revision) {
		return "has failed before, too long ago to know how"
	}
	return ""
}

// fail writes the target down as failed. A new DaemonSet has nothing to go back to.
func (c *Course) fail(why string, action v1alpha1.FailureAction) {
	if c.isNew() {
		action = halt
	}
	f := v1alpha1.FailedRevision{
		Revision: c.state.target, Why: why, Nodes: c.failedSample(), Time: metav1.NewTime(c.now), Action: action,
	}
	if r := c.spec.Retry; r != nil && r.Revision == c.state.target {
		f.Retries = r.Count
	}
	c.state.add(f)
	c.revoke()
	if action == rollback {
		c.turnBack()
	}
}

// refuse has a target wait for somebody to ask for it that failed longer ago than is
// remembered well. One that failed under a DaemonSet that was deleted since is halted:
// the new one has nothing to go back to.
func (c *Course) refuse() {
	target := c.state.target
	if target == c.state.stable {
		return
	}
	if f := c.failedRevision(target); f != nil {
		if c.isNew() && rollsBack(f) {
			c.state.failed = slices.Clone(c.state.failed)
			c.failedRevision(target).Action = halt
		}
		return
	}
	if why := c.state.refusal(target); why != "" {
		c.state.drop(target)
		c.fail(why+"; everynode rollout retry tries it", halt)
	}
}

// retry tries a failed revision again, if somebody asks for it once more.
func (c *Course) retry(f *v1alpha1.FailedRevision) bool {
	r := c.spec.Retry
	if r == nil || r.Revision != f.Revision || r.Count <= f.Retries {
		return false
	}
	c.state.drop(r.Revision)
	c.beginAnew()
	c.disregardEarlier()
	c.recallBefore(c.goneBack())
	c.refreshAll()
	return true
}

// goneBack are the nodes from which the way back took a working daemon, and which have none since. A try
// of the target does not give it to them.
func (c *Course) goneBack() map[string]Before {
	out := map[string]Before{}
	for name, n := range c.nodes {
		if n.change.taken && n.daemon.Revision != c.state.target {
			out[name] = WasAvailable
		}
	}
	return out
}

// disregardEarlier has what nodes and pods of the target did until now be no evidence.
func (c *Course) disregardEarlier() {
	c.state.since = c.now.Truncate(time.Second) // as the API keeps it
	c.overlook()
}

// overlook has the restarts of pods that are older than the evidence not count.
func (c *Course) overlook() {
	for _, n := range c.nodes {
		if c.old(n) {
			n.change.overlooked = n.daemon.Restarts
		}
	}
}

// old reports whether the node's pod is from before the target was tried again: what was
// wrong with it then is no evidence.
func (c *Course) old(n *node) bool {
	return n.daemon.Revision == c.state.target && n.daemon.Made.Before(c.state.since)
}

// restarts is how often the node's newest pod restarted since the evidence begins.
func (c *Course) restarts(n *node) int32 { return n.daemon.Restarts - n.change.overlooked }

// lasting is how long a trouble must be seen before it counts as one that waiting does not end: a
// ConfigMap may come a moment later than its reader, and registries and webhooks restart. A kubelet has
// tried three times by then.
const lasting = 30 * time.Second

// sureFrom is when the trouble that the node's pod is in counts as one that waiting does not end;
// zero if it does already, or the pod is in none.
func (c *Course) sureFrom(n *node) time.Time {
	if n.change.troubled.IsZero() || c.policy == nil {
		return time.Time{}
	}
	at := n.change.troubled.Add(min(lasting, c.policy.Failure.StartDeadline))
	if !at.After(c.now) {
		return time.Time{}
	}
	return at
}

// lasts reports whether the trouble that the node's pod is in, or that it is refused, has lasted.
func (c *Course) lasts(n *node) bool {
	return !n.change.troubled.IsZero() && c.sureFrom(n).IsZero()
}

// roomUntil is until when the scheduler may find room for a pod from before the target was
// tried again; zero if it has said its word.
func (c *Course) roomUntil(n *node) time.Time {
	if c.policy == nil || n.daemon.NoRoom == "" || !c.old(n) {
		return time.Time{}
	}
	if ends := c.state.since.Add(c.policy.Failure.StartDeadline); ends.After(c.now) {
		return ends
	}
	return time.Time{}
}

// giveUp takes the nodes back that a halt left as they were, because somebody aborted it; false if there is nothing to do.
func (c *Course) giveUp(f *v1alpha1.FailedRevision) bool {
	if !c.aborts() || c.isNew() || rollsBack(f) {
		return false
	}
	c.state.failed = slices.Clone(c.state.failed)
	given := c.failedRevision(f.Revision)
	given.Action, given.Why = rollback, given.Why+"; somebody aborted it"
	c.turnBack()
	c.refreshAll()
	return true
}

func (c *Course) failedRevision(revision string) *v1alpha1.FailedRevision {
	for i := range c.state.failed {
		if c.state.failed[i].Revision == revision {
			return &c.state.failed[i]
		}
	}
	return nil
}

func (c *Course) hasFailed(revision string) bool {
	return c.failedRevision(revision) != nil || slices.Contains(c.state.earlier, revision)
}
