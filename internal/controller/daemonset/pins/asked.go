package pins

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// Begun says that a pod of the DaemonSet, of that name, was asked for.
func (b *Book) Begun(uid types.UID, revision, name string) {
	s := b.sets[uid]
	if s == nil || s.info == nil {
		return
	}
	if u := s.unknown[content.TemplateOf(revision)]; u != nil && !s.blind {
		u.begun, u.asked = b.now, name
		b.tell(s)
	}
}

// onAnswer takes in what became of an action. Where a pod was refused, or could not be made, another node may be first
// at once.
func (b *Book) onAnswer(e action.Answer) {
	a, is := e.Action.(*action.CreatePod)
	if !is || e.Outcome != action.Failed {
		return
	}
	s := b.sets[a.UID]
	if s == nil || s.info == nil {
		return
	}
	if u := s.unknown[content.TemplateOf(a.Revision)]; u != nil && u.asked == a.PodName && !u.begun.IsZero() {
		u.begun = time.Time{}
		b.tell(s)
	}
}
