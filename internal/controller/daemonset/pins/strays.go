package pins

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// OtherImages stands, in place of a content's ID, in the revision of a pod that runs other bits than those of its
// template. It is in words that can be such an ID, so that all who read revisions take it for one that nobody wants.
const OtherImages = "otherimagesotherimagesot"

// as is a pod as the matrix is to see it: beside another controller one that was made by tag while no digest could be
// filled in, and runs other bits, is none of its revision, and is replaced. While a change is under way none is told
// apart: a pod that came before its turn goes back by its revision.
func (b *Book) as(e fact.Pod) fact.Pod {
	delete(b.strays, e.UID)
	s := b.sets[e.Owner]
	if s == nil || s.info == nil || !s.settled || content.TemplateOf(e.Revision) != s.template() {
		return e
	}
	known, is := s.found[s.template()]
	template, o := b.spec(s, s.template()), b.Objects.Pod(e.UID)
	if !is || template == nil || o == nil || !pinning.RunsOther(template, &known, o) {
		return e
	}
	b.strays[e.UID] = e
	e.Revision = content.Revision(s.template(), OtherImages)
	return e
}

// settle finds out whether pods can be told apart by now, and tells of those again that count otherwise then.
func (b *Book) settle(s *set) {
	if !b.Guest || s.info == nil {
		return
	}
	st, known := b.rows.Rollout(s.info.UID)
	is := known && content.TemplateOf(st.StableRevision) == s.template() &&
		content.TemplateOf(st.TargetRevision) == s.template() && b.spec(s, s.template()) != nil
	if is == s.settled {
		return
	}
	s.settled = is
	for _, uid := range b.rows.Pods() {
		told, _ := b.rows.Pod(uid)
		if told.Owner != s.info.UID {
			continue
		}
		is, _ := b.Pod(uid)
		if is = b.as(is); is.Revision != told.Revision {
			b.rows.Step(is)
		}
	}
}

// takeBack has all pods of a DaemonSet be what they say.
func (b *Book) takeBack(owner types.UID) {
	for uid, e := range b.strays {
		if e.Owner == owner {
			delete(b.strays, uid)
			b.rows.Step(e)
		}
	}
}

// Pod is what is known of a pod, with the revision that it says.
func (b *Book) Pod(uid types.UID) (fact.Pod, bool) {
	p, known := b.rows.Pod(uid)
	if e, is := b.strays[uid]; is {
		p.Revision = e.Revision
	}
	return p, known
}
