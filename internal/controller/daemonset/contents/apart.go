package contents

import (
	"maps"
	"slices"

	"github.com/everynode/everynode/internal/change/content"
)

// last is what an object was when it was there last, as far as that says whether it is content.
type last struct {
	labels     map[string]string
	notContent bool
	// unseen: that was before this controller began. By its label it was none.
	unseen bool
}

// takes reports whether what the template names is content. An object that is not there is what it was last: else its
// going would be a change, and its coming another one that waits for its turn.
func (b *Book) takes(s *set, sp *space, ref content.Ref) bool {
	if o := sp.objects[ref]; o != nil {
		s.last[ref] = last{labels: o.Labels, notContent: o.NotContent}
	}
	was, known := s.last[ref]
	if !known && s.latest == "" && b.hadNot(s, ref) {
		was = last{unseen: true}
		s.last[ref] = was
	}
	return !was.notContent && !s.rules.Excludes(ref.Name, was.labels) && !(was.unseen && s.rules.ByLabel())
}

// hadNot reports whether the content that the template has had holds an object not: pods name the author's.
func (b *Book) hadNot(s *set, ref content.Ref) bool {
	st, _ := b.rollout(s.info.UID)
	pods := slices.Sorted(maps.Keys(b.counts[s.info.UID]))
	for _, revision := range append([]string{st.TargetRevision, st.StableRevision}, pods...) {
		k := s.known[content.IDOf(revision)]
		if k != nil && content.TemplateOf(revision) == s.info.Revision {
			return !slices.Contains(k.Refs(), ref)
		}
	}
	return false
}
