package contents

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// A program of before content wrote where the rollout stands, or content was turned off for a while. Then the rollout
// names revisions by their templates alone, and pods have kept the content of before: what works is that, and not what
// the objects hold by now.

// Again says to what stands below that the matrix is to forget where a DaemonSet's rollout stands, since it is told
// where in the same step. The rollout itself goes on: what else is known of it stays.
type Again types.UID

// Verb is the event's word in scripts; the matrix is told fact.RolloutGone.
func (Again) Verb() string { return fact.RolloutGone("").Verb() }

// named reports whether the rollout, as it is stored, speaks of revisions, and of no content.
func (s *set) named() bool {
	if s.rollout == nil || s.rollout.Status == nil {
		return false
	}
	st := s.rollout.Status
	return st.StableRevision != "" && !speaksOfContent(st)
}

// byTemplate reports whether pods are still called by their templates, though content is wanted: the newest revision
// has none yet, and a pod of the stable template is none to be replaced by another of it.
func (s *set) byTemplate() bool {
	return s.named() && (s.told == nil || content.IDOf(s.told.Revision) == "")
}

// stood is the stable revision with the content that most pods of its template have kept; "" if it is not known what
// it was, or it was none.
func (b *Book) stood(uid types.UID, s *set) string {
	stable := s.rollout.Status.StableRevision
	if st, known := b.rows.Rollout(uid); known && st.StableRevision != stable {
		return ""
	}
	counts := b.counts[uid]
	most, have, all := "", 0, 0
	for _, revision := range slices.Sorted(maps.Keys(counts)) {
		if content.TemplateOf(revision) != content.TemplateOf(stable) {
			continue
		}
		all += counts[revision]
		if counts[revision] > have {
			most, have = content.Revision(stable, content.IDOf(revision)), counts[revision]
		}
	}
	without := b.rows.PodsOfRevision(uid, content.TemplateOf(stable)) - all
	failed := rolloutpolicy.HasFailed(s.rollout.Status, content.WithVariants(most, ""))
	if have <= without || failed || b.unsound(s, most, true) != "" {
		return ""
	}
	return most
}

// pass tells the matrix of a DaemonSet, and with the first revision that has content which one the stable one has.
func (b *Book) pass(s *set, info fact.DaemonSet) {
	uid, stood, first := info.UID, "", s.rules != nil && content.IDOf(info.Revision) != "" && s.byTemplate()
	if first {
		stood = b.stood(uid, s)
	}
	s.told = &info
	if first {
		b.rename(uid, s)
	}
	if stood != "" {
		st := s.rollout.Status.DeepCopy()
		st.StableRevision = stood
		s.rollout.Status = st
		b.rows.Step(Again(uid)) // of a rollout that is known the matrix reads no status
	}
	b.rows.Step(info)
	if stood != "" {
		b.tellRollout(s)
	}
}
