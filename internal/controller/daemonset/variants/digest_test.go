package variants

import (
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// The digest of a whole revision, as it was stored, stays as it is: people have approved it, and of its content nothing
// may have been read yet.
func TestTheDigestOfAWholeRevisionStays(t *testing.T) {
	w := newWorld()
	w.setNode("n", "l", 4)
	w.setVariant("l", "l", 0, 0, 2)
	w.begin()
	s := w.sets["ds"]
	whole := s.told.Digest
	w.Step(fact.Rollout{UID: "ds", Status: &v1alpha1.DaemonSetRolloutStatus{
		TargetRevision: w.newest(), TargetDigest: whole}})
	info := *s.info
	template := info.Digest
	for digest, want := range map[string]string{whole: whole, template: whole} {
		info.Digest = digest
		w.Step(info)
		if s.told.Digest != want || template == whole {
			t.Errorf("of digest %q it is told %q, want %q", digest, s.told.Digest, want)
		}
	}
}
