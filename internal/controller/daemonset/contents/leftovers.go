package contents

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// keeps reports whether an object stands for content of the DaemonSet, or of one that had the name before, if it
// is listed.
func (s *set) keeps(o *object, listed bool) bool {
	is := o.Labels[content.Label]
	return (is == content.IsCopy || is == content.IsManifest) && (s.owns(o.meta) || listed && s.inherits(o.meta))
}

// listed are the manifests and copies of all contents that are known.
func (s *set) listed() map[content.Ref]bool {
	all := make(map[string]bool, len(s.known))
	for id := range s.known {
		all[id] = true
	}
	return s.needed(all)
}

// needed are the manifests and copies of such contents; nil where it is not known which copies one needs.
func (s *set) needed(wanted map[string]bool) map[content.Ref]bool {
	needed := map[content.Ref]bool{}
	for id := range wanted {
		k := s.known[id]
		if k == nil {
			return nil
		}
		needed[s.listOf(id)] = true
		for _, m := range k.Members {
			needed[m.CopyRef()] = true
		}
	}
	return needed
}

// leftovers are copies and manifests of the DaemonSet that nobody has needed for a while.
func (b *Book) leftovers(s *set, sp *space, wanted map[string]bool) (out []metav1.Object) {
	needed := s.needed(wanted)
	if needed == nil {
		b.misses(s, wanted)
		return nil
	}
	if s.unlisted.id != "" {
		s.unlisted.id = ""
		b.lookAgain(s, b.now) // nothing is to be told of it any more
	}
	for id := range s.known {
		if !wanted[id] && s.known[id].manifest == nil {
			delete(s.known, id)
			b.lookAgain(s, b.now) // where it was the last one, this is told
		}
	}
	since := map[content.Ref]time.Time{}
	listed := s.listed()
	for ref, o := range sp.objects {
		if needed[ref] || !b.mayGo(s, o, listed[ref]) {
			continue
		}
		at, known := s.unwanted[ref]
		if !known {
			at = b.now
		}
		since[ref] = at
		if gone := at.Add(b.Linger); gone.After(b.now) {
			b.lookAgain(s, gone)
		} else {
			out = append(out, o.meta)
		}
	}
	if len(s.known) > len(wanted) || len(wanted) > 1 || s.rules == nil && len(wanted) > 0 {
		b.lookAgain(s, b.now.Add(b.Linger)) // What is stable may be another by then.
	}
	s.unwanted = since
	out = slices.DeleteFunc(out, func(o metav1.Object) bool { return b.listsMore(sp, s, needed, out, o) })
	maps.DeleteFunc(s.lost, func(ref content.Ref, _ *object) bool { return !needed[ref] })
	maps.DeleteFunc(s.sums, func(of hashed, _ sum) bool { return sp.objects[of.object] == nil })
	slices.SortFunc(out, byManifest)
	return out
}

// mayGo reports whether an object goes when no content of the DaemonSet needs it: it stands for one, and no template of
// the namespace names it itself, as one does that was written from a pod.
func (b *Book) mayGo(s *set, o *object, listed bool) bool {
	if !s.keeps(o, listed) {
		return false
	}
	for _, by := range b.sets {
		if by.object != nil && by.object.Namespace == o.meta.GetNamespace() &&
			slices.Contains(content.Refs(&by.object.Spec.Template.Spec), o.Ref) {
			return false
		}
	}
	return true
}

// misses notes of which content there is no list. For a moment that is nothing to tell.
func (b *Book) misses(s *set, wanted map[string]bool) {
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if s.known[id] != nil {
			continue
		}
		if s.unlisted.id != id {
			s.unlisted.id, s.unlisted.since = id, b.now
		}
		if at := s.unlisted.since.Add(b.Linger); at.After(b.now) {
			b.lookAgain(s, at)
		}
		return
	}
}

// listsMore reports whether an object is a manifest that must stay for a while: it lists a copy that is there, or may
// be, and is neither needed nor among those that go now. Without it nobody would know that there is one.
func (b *Book) listsMore(sp *space, s *set, needed map[content.Ref]bool, going []metav1.Object, o metav1.Object) bool {
	for _, k := range s.known {
		if k.manifest == nil || k.manifest.GetUID() != o.GetUID() {
			continue
		}
		for _, m := range k.Members {
			ref := m.CopyRef()
			copied := sp.objects[ref]
			goes := copied != nil && slices.ContainsFunc(going, func(g metav1.Object) bool {
				return g.GetUID() == copied.meta.GetUID()
			})
			switch {
			case needed[ref], goes:
			case copied != nil, !sp.sight[m.Kind].read:
				return true
			}
		}
	}
	return false
}

// byManifest puts manifests last: what lists a copy outlives it.
func byManifest(a, c metav1.Object) int {
	rank := func(o metav1.Object) int {
		if o.GetLabels()[content.Label] == content.IsManifest {
			return 1
		}
		return 0
	}
	return cmp.Or(rank(a)-rank(c), cmp.Compare(a.GetName(), c.GetName()))
}

// Left says why copies of a DaemonSet stay that nobody needs, and what to do; "" where none does, or not for long.
func (b *Book) Left(uid types.UID) string {
	if s := b.sets[uid]; s != nil {
		return s.left
	}
	return ""
}

// tellLeft has a DaemonSet say why copies stay, and an event the first time.
func (b *Book) tellLeft(s *set, info *fact.DaemonSet) {
	if why := b.stay(s); s.left != why {
		s.left = why
		if why != "" {
			b.news = append(b.news, News{DaemonSet: s.object, Warning: true, Reason: "RolloutCopiesStay", Message: why})
		}
	}
	if c := info.Content; s.left != "" || c != nil && c.Leftover != "" {
		said := ptr.Deref(c, v1alpha1.ContentStatus{})
		said.Leftover = s.left
		info.Content = &said
	}
}

// stay says why copies stay that nobody needs, or will not be found when nobody does any more. What content that is
// followed lacks is not said twice.
func (b *Book) stay(s *set) string {
	if s.object == nil || s.why != "" || !b.concerns(s) {
		return ""
	}
	byHand := "delete by hand what has the label " + content.Label + " and is owned by DaemonSet " + s.object.Name
	sp := b.space(s.object.Namespace)
	switch maps, secrets := sp.sight[content.ConfigMap].why, sp.sight[content.Secret].why; {
	case maps != "":
		return fmt.Sprintf("copies cannot be found: %s; or %s, and then the DaemonSetRollout", maps, byHand)
	case secrets != "" && s.keyed():
		return fmt.Sprintf("copies cannot be found: %s; or %s", secrets, byHand)
	case s.job.delete.why != "":
		return fmt.Sprintf("%s; allow it, or %s", s.job.delete.why, byHand)
	case s.unlisted.id != "" && !s.unlisted.since.Add(b.Linger).After(b.now):
		return fmt.Sprintf("nobody knows which copies pods of content %s read, as ConfigMap %s is gone: none is deleted "+
			"before these pods are", s.unlisted.id, content.ManifestName(s.object.Name, s.unlisted.id))
	}
	return ""
}

// abandon forgets what was known of copies where nobody can see whether they are there: somebody has deleted the
// rollout that spoke of them, content is off, and no pod refers to any.
func (b *Book) abandon(s *set) {
	sp := b.spaces[s.object.Namespace]
	if s.rules == nil && len(b.counts[s.object.UID]) == 0 && sp != nil && sp.sight[content.ConfigMap].why != "" {
		clear(s.known)
	}
}
