// Package failedrevision is what a rollout remembers of revisions that failed.
package failedrevision

import (
	"slices"

	"github.com/everynode/everynode/api/v1alpha1"
)

// So many failed revisions are remembered with what happened, and so many more by name.
const (
	keptFailures = 10
	keptEarlier  = 200
)

// Memory is which revisions have failed. None of them goes out again unasked. The oldest are
// forgotten, and only counted: a revision that nobody knows is a new one. What it holds is never changed in place.
type Memory struct {
	Failed    []v1alpha1.FailedRevision
	Earlier   []string
	Forgotten int32
}

// Recall is the memory that a status has.
func Recall(s *v1alpha1.DaemonSetRolloutStatus) Memory {
	return Memory{slices.Clone(s.FailedRevisions), slices.Clone(s.EarlierFailures), s.ForgottenFailures}
}

// Add remembers one, and forgets about the others what there is no room for.
func (m *Memory) Add(f v1alpha1.FailedRevision) {
	m.Failed = append(slices.Clone(m.Failed), f)
	if len(m.Failed) > keptFailures {
		m.Earlier = append(slices.Clone(m.Earlier), m.Failed[0].Revision)
		m.Failed = m.Failed[1:]
	}
	if len(m.Earlier) > keptEarlier {
		m.Earlier = m.Earlier[1:]
		m.Forgotten++
	}
}

// Drop forgets one that is tried again.
func (m *Memory) Drop(revision string) {
	m.Failed = slices.DeleteFunc(slices.Clone(m.Failed),
		func(f v1alpha1.FailedRevision) bool { return f.Revision == revision })
	m.Earlier = slices.DeleteFunc(slices.Clone(m.Earlier), func(r string) bool { return r == revision })
}

// Refusal says why a revision that nobody knows more about is not to go out unasked; "" if
// it may.
func (m *Memory) Refusal(revision string) string {
	if slices.Contains(m.Earlier, revision) {
		return "has failed before, too long ago to know how"
	}
	return ""
}

// Failure is what is known of a revision that failed; nil if it did not, or that is all.
func (m *Memory) Failure(revision string) *v1alpha1.FailedRevision {
	for i := range m.Failed {
		if m.Failed[i].Revision == revision {
			return &m.Failed[i]
		}
	}
	return nil
}

// HasFailed reports whether the revision has failed.
func (m *Memory) HasFailed(revision string) bool {
	return m.Failure(revision) != nil || slices.Contains(m.Earlier, revision)
}
