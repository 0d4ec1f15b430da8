// Package approval knows which change of a DaemonSet somebody approved. Revisions come again: a change is undone and
// made once more, or what failed is tried again. Who approved the one before has not seen what came of it. So changes
// have numbers, status.change, which only grow.
//
// An approval names the number. One that names none, such as of an older client, is for the change that is under way
// when it is written. Everynode's own API server knows that, and fills it in; elsewhere the controller remembers, in
// status.approved, under which change it first saw the approval. Pure.
package approval

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Consent is the change under way, and what somebody approved.
type Consent struct {
	// change is its number.
	change int64
	// heard is the approval that was seen last, with the change that it is for; nil for none.
	heard *v1alpha1.StepApproval
}

// Recall is what a status says of both.
func Recall(s *v1alpha1.DaemonSetRolloutStatus) Consent { return Consent{s.Change, s.Approved} }

// Tell says it in a status.
func (c *Consent) Tell(s *v1alpha1.DaemonSetRolloutStatus) { s.Change, s.Approved = c.change, c.heard }

// Change is the number of the change under way.
func (c *Consent) Change() int64 { return c.change }

// Next begins another change.
func (c *Consent) Next() { c.change++ }

// Hear takes in what the spec says; retried tells that it asks for a retry that has not begun, which is a change too.
//
// What was seen before, and names no change any more since an older client wrote it, stays for the change that it
// was for: else who pauses a rollout would approve. Where the number of the change was lost, as in a release that
// knew none, an approval may have a greater one: no change ever gets that.
func (c *Consent) Hear(a *v1alpha1.StepApproval, retried bool) {
	if a == nil {
		c.heard = nil
		return
	}
	next := *a
	switch {
	case a.Change > after(c.change, retried):
		c.change = a.Change + 1
	case a.Change != 0:
	case c.heard != nil && is(a, c.heard):
		next.Change = c.heard.Change
	default:
		next.Change = after(c.change, retried)
	}
	c.heard = &next
}

// To is the approval of the change under way, if that is to the revision with the digest; nil if there is none.
// Where it was for another change to that revision, void says so, to go on in a message.
func (c *Consent) To(revision, digest string) (a *v1alpha1.StepApproval, void string) {
	a = c.heard
	switch {
	case a == nil || a.Revision != revision || a.Digest != digest:
		return nil, ""
	case a.Change != c.change:
		return nil, fmt.Sprintf("; the approval of revision %s was for an earlier change; approve again", revision)
	}
	return a, ""
}

// Given is what the spec approves of the change that a status speaks of.
func Given(spec *v1alpha1.DaemonSetRolloutSpec, s *v1alpha1.DaemonSetRolloutStatus) (*v1alpha1.StepApproval, string) {
	if spec.Approved == nil {
		return nil, ""
	}
	c := Recall(s)
	c.Hear(spec.Approved, retried(spec, s))
	return c.To(s.TargetRevision, cmp.Or(s.TargetDigest, spec.Approved.Digest))
}

// Due is the change that an approval is for which is written into the rollout now.
func Due(r *v1alpha1.DaemonSetRollout) int64 {
	return after(r.Status.Change, retried(&r.Spec, &r.Status))
}

func after(change int64, retried bool) int64 {
	if retried {
		return change + 1
	}
	return change
}

// Tries is how often people have asked for another try of a revision with a digest.
func Tries(r *v1alpha1.Retry, revision, digest string) int32 {
	if r == nil || r.Revision != revision || r.Digest != digest {
		return 0
	}
	return r.Count
}

// Asks reports whether somebody asks for one more try of a revision with a digest that has failed.
func Asks(r *v1alpha1.Retry, f *v1alpha1.FailedRevision, digest string) bool {
	return f != nil && Tries(r, f.Revision, digest) > f.Retries
}

// retried reports whether the spec asks for a try of the target that the status does not know of yet.
func retried(spec *v1alpha1.DaemonSetRolloutSpec, s *v1alpha1.DaemonSetRolloutStatus) bool {
	isTarget := func(f v1alpha1.FailedRevision) bool { return f.Revision == s.TargetRevision }
	at := slices.IndexFunc(s.FailedRevisions, isTarget)
	return at >= 0 && Asks(spec.Retry, &s.FailedRevisions[at], s.TargetDigest)
}

// Written returns what is stored of an approval that is written over another, which may be nil, where the rollout is at
// the change that is due. Who patches the revision, and knows of no change, leaves that of the approval before, which
// cannot be that of another revision.
func Written(a, was *v1alpha1.StepApproval, due int64) *v1alpha1.StepApproval {
	if a == nil {
		return nil
	}
	next := *a
	switch {
	case a.Change != 0 && (was == nil || a.Change != was.Change || a.Revision == was.Revision && a.Digest == was.Digest):
	case was != nil && is(a, was):
		next.Change = was.Change
	default:
		next.Change = due
	}
	return &next
}

// is reports whether two approvals are of the same, whatever the change.
func is(a, b *v1alpha1.StepApproval) bool {
	return a.Revision == b.Revision && a.Digest == b.Digest && a.Step == b.Step
}
