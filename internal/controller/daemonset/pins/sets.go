package pins

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// followed is the set of a DaemonSet whose policy pins, or did when it could be read; nil for another. Begins tells
// that it is new. Of one of which nothing can be read only pods tell.
func (b *Book) followed(e *fact.Rollout) (s *set, begins bool) {
	s = b.sets[e.UID]
	blind := e.Policy == nil && e.Status == nil && !b.Guest
	unpinned := e.Policy != nil && !e.Policy.PinsImages
	if unpinned || s != nil && s.blind && !blind {
		b.leave(e.UID)
		s = nil
	}
	// A policy that cannot be read changes nothing.
	pins := blind || e.Policy != nil || e.Status != nil && e.Status.Images != nil
	if s != nil || unpinned || !pins {
		return s, false
	}
	s = &set{info: b.infos[e.UID], found: map[string]v1alpha1.PinnedTemplate{}, unknown: map[string]*unknown{}}
	s.blind, b.sets[e.UID] = blind, s
	return s, true
}

// recall takes over which digests a status knows.
func (s *set) recall(status *v1alpha1.DaemonSetRolloutStatus) {
	s.stored = []string{status.StableRevision, status.TargetRevision}
	if status.Images == nil {
		return
	}
	for _, t := range status.Images.Templates {
		if _, known := s.found[t.Template]; !known {
			s.found[t.Template] = t
		}
	}
}
