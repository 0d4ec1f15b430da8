package contents

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
)

// naming is what follows how the matrix calls the revisions of pods that have content.
type naming struct {
	// whole: content is a part of revisions, or may be. The rest matters only where it is not.
	whole bool
	// newest is the newest template, stable the stable revision. That may have content until the newest revision, which
	// has none, is everywhere. back: the newest has failed, and nodes go to the stable one.
	newest, stable string
	back           bool
}

// of is how the matrix calls a revision. Without content a pod of the newest template is as good as any other of it.
// Of the stable template it has the stable revision: who is given that must be seen to have it, or it is given again
// and again.
func (n *naming) of(revision string) string {
	template := content.TemplateOf(revision)
	switch {
	case n.whole, n.back && revision == n.stable:
		return revision
	case template != n.newest && template == content.TemplateOf(n.stable):
		return n.stable
	}
	return template
}

// namingNow is how revisions are to be called by what is known now.
func (b *Book) namingNow(uid types.UID, s *set) naming {
	if s.rules != nil || s.unsure {
		return naming{whole: !s.byTemplate()}
	}
	if s.info == nil || s.rollout == nil {
		return naming{}
	}
	st, _ := b.rollout(uid)
	if content.IDOf(st.StableRevision) == "" {
		return naming{}
	}
	if b.Guest {
		return naming{whole: true} // whoever makes the pods gives each just what its node is to have
	}
	// While no policy can be read nodes go nowhere, and later where they went before.
	goes := st.Phase == v1alpha1.PhaseRolledBack || st.Phase == v1alpha1.PhasePaused && s.naming.back
	return naming{newest: s.info.Revision, stable: st.StableRevision,
		back: goes && content.WithVariants(st.TargetRevision, "") == s.info.Revision}
}

// rename tells of all pods of a DaemonSet with content again, if their revisions are to be called otherwise.
func (b *Book) rename(uid types.UID, s *set) {
	now := b.namingNow(uid, s)
	if now == s.naming {
		return
	}
	s.naming = now
	for pod, m := range b.marked {
		info, known := b.rows.Pod(pod)
		if as := now.of(m.revision); known && m.owner == uid && as != info.Revision {
			info.Revision = as
			b.rows.Step(info)
		}
	}
}

// renameAll does so where the rollout has come elsewhere by itself.
func (b *Book) renameAll() {
	for uid := range b.counts {
		if s := b.sets[uid]; s != nil && s.naming.stable != "" {
			b.rename(uid, s)
		}
	}
}

// as is how the matrix calls the revision of a pod.
func (b *Book) as(owner types.UID, revision string) string {
	if s := b.sets[owner]; s != nil {
		return s.naming.of(revision)
	}
	return content.TemplateOf(revision)
}

// PodsOfRevision returns how many pods the DaemonSet owns that carry the hash of a template.
func (b *Book) PodsOfRevision(uid types.UID, hash string) int {
	names := map[string]bool{hash: true}
	for revision := range b.counts[uid] {
		if content.TemplateOf(revision) == hash {
			names[b.as(uid, revision)], names[revision] = true, true
		}
	}
	n := 0
	for name := range names {
		n += b.rows.PodsOfRevision(uid, name)
	}
	return n
}

// renamed is what a revision of the DaemonSet was called until now, if it is called otherwise by the policy alone: the
// template is the same, and what is content by both names is as it was. What was no content before, or is none any
// more, tells nothing. "" for another revision.
func (b *Book) renamed(s *set, revision string) string {
	was := ""
	if s.told != nil {
		was = s.told.Revision
	} else if st, known := b.rollout(s.info.UID); known {
		was = st.TargetRevision
	}
	if was == revision {
		return s.renamed
	}
	s.renamed = ""
	same := content.TemplateOf(was) == content.TemplateOf(revision)
	if same && b.sameObjects(s, content.IDOf(was), content.IDOf(revision)) {
		s.renamed = was
	}
	return s.renamed
}

// sameObjects reports whether two contents are of other objects, and those of both hold the same: to is what they hold
// now. Of no content, "", they are while nothing was written since content was turned on or off.
func (b *Book) sameObjects(s *set, from, to string) bool {
	switch {
	case from == "":
		return to != "" && to == s.first
	case to == "":
		return s.latest == "" || s.latest == from
	}
	was, is := s.known[from], s.known[to]
	if was == nil || is == nil || slices.Equal(was.Refs(), is.Refs()) {
		return false
	}
	sp := b.space(s.object.Namespace)
	key, err := b.keyFor(s.object.Namespace, was.Refs())
	for _, m := range was.Members {
		o := sp.objects[m.Ref]
		switch {
		case !slices.Contains(is.Refs(), m.Ref):
		case m.Absent != (o == nil), err == nil && o != nil && !s.genuine(key, m, o):
			return false
		}
	}
	return true
}

// digestOf is the digest of a revision of the template that there is. Of a content that is not known it is what was
// told of it, or stored.
func (b *Book) digestOf(s *set, revision string) string {
	id := content.IDOf(revision)
	switch k := s.known[id]; {
	case id == "":
		return s.info.Digest
	case k != nil:
		return Digest(s.info.Digest, k.Digest)
	case s.told != nil && s.told.Revision == revision:
		return s.told.Digest
	}
	st, _ := b.rollout(s.info.UID)
	return st.TargetDigest
}

// Digest is that of a template and a content.
func Digest(template, of string) string {
	if of == "" {
		return template
	}
	sum := sha256.Sum256([]byte(template + "\n" + of))
	return "sha256:" + hex.EncodeToString(sum[:])
}
