package contents

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// ways is what was last worked out of how running pods can go from content to content.
type ways struct {
	of   *corev1.PodTemplateSpec
	key  string
	said *fact.Live
}

// NoLive says why no pod is given content as it runs.
const NoLive = "the API server is not Everynode's: content cannot be given to running pods"

// BySurge says why a surge gives none.
const BySurge = "with maxSurge a new pod starts beside the old one"

// ways are those between the contents that pods have, and those that they are to have. Equal ones are the same
// value, so that they are no news.
func (b *Book) ways(s *set, info *fact.DaemonSet) *fact.Live {
	if s.rules == nil || !s.rules.Live || !b.Live || s.object == nil || info.Strategy.Surges() {
		return nil
	}
	st, _ := b.rollout(info.UID)
	to := content.IDsOf([]string{info.Revision, st.StableRevision, st.TargetRevision})
	from := append([]string{""}, to...)
	for revision := range b.counts[info.UID] {
		from = append(from, content.IDOf(revision))
	}
	slices.Sort(from)
	from = slices.Compact(from)
	of, key := &s.object.Spec.Template, s.rules.Settle.String()+" "+strings.Join(to, ",")
	for _, id := range from {
		key += fmt.Sprintf(" %s=%v", id, s.known[id] != nil)
	}
	if s.live.of == of && s.live.key == key {
		return s.live.said
	}
	out := &fact.Live{Settle: s.rules.Settle, Ways: s.pairs(from, to)}
	if had := s.live.said; had != nil && had.Settle == out.Settle && slices.Equal(had.Ways, out.Ways) {
		out = had
	}
	s.live = ways{of, key, out}
	return out
}

// pairs are the ways from some contents to others that nothing hinders.
func (s *set) pairs(from, to []string) (out [][2]string) {
	for _, f := range from {
		for _, t := range to {
			if f != t && s.hinders(f, t) == "" {
				out = append(out, [2]string{f, t})
			}
		}
	}
	return out
}

// hinders says what keeps a running pod of the template from going from one content to another; "" for nothing. That
// of no content is "".
func (s *set) hinders(from, to string) string {
	next := s.known[to]
	if next == nil || from != "" && s.known[from] == nil {
		return "what the pods have is not known any more"
	}
	spec := s.object.Spec.Template.Spec.DeepCopy()
	if from != "" {
		content.Rewrite(spec, s.known[from].Members)
	}
	_, err := content.Point(spec, next.Members)
	if err != nil {
		return err.Error()
	}
	return ""
}

// restarts says why pods are replaced to get the content of the revision; "" if they are not, or for nobody knows what.
func (b *Book) restarts(s *set, info *fact.DaemonSet) string {
	st, _ := b.rollout(info.UID)
	from, to := content.IDOf(st.StableRevision), content.IDOf(info.Revision)
	sameTemplate := content.TemplateOf(st.StableRevision) == content.TemplateOf(info.Revision)
	switch {
	case st.StableRevision == "" || from == to || !sameTemplate:
		return ""
	case !b.Live:
		return NoLive
	case info.Strategy.Surges():
		return BySurge
	case to == "" || s.object == nil:
		return ""
	}
	return s.hinders(from, to)
}
