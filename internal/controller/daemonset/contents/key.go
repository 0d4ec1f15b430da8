package contents

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/content"
)

// A copy is what it was made as if its hash is. Where Secrets are content that takes the namespace's key: another one
// fits none of the copies that there are. So none is made while copies are checked with one that is lost, by which
// nothing could be given any more, and people are told what is missing. Nothing else can tell that a copy is genuine.

// What people are told of a key that is lost.
const (
	wayOut = "put it back from a backup, or turn content off, and on again when that has reached all nodes"

	keyLost = "Secret " + content.KeyName + ", with which copies of Secrets are checked, is gone or holds no key: " +
		wayOut
	// otherKey is said of a copy, or of a list.
	otherKey = "does not fit Secret " + content.KeyName + ", which is younger, and not that with which it was made: " +
		wayOut
)

// takeKey keeps the key of a Secret, also of one that somebody deletes: the same one is made again, unless copies were
// made with another. Who deletes that one puts another back.
func (b *Book) takeKey(sp *space, o *object, gone bool) {
	key := content.KeyOf(o.raw.(*corev1.Secret))
	switch {
	case gone && b.misfits(o.meta.GetNamespace()):
		sp.key = nil
	case key != nil && !gone:
		sp.key, sp.keyed = key, o.meta.GetCreationTimestamp().Time
	}
}

// misfits reports whether the key of a namespace does not fit a copy that is checked with it.
func (b *Book) misfits(namespace string) bool {
	for _, s := range b.sets {
		if s.object != nil && s.object.Namespace == namespace && b.misfit(s) != "" {
			return true
		}
	}
	return false
}

// misfit names a copy, or a list, that the namespace's key does not fit, of what may be given; "" if there is none.
func (b *Book) misfit(s *set) string {
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		k := s.known[id]
		of, why := b.missing(s, k)
		if why == "" { // empty copies fit any key
			of, why = s.listOf(id), b.listFlaw(s, k)
		}
		if why == otherKey && b.mayGive(s, id) {
			return fmt.Sprintf("%s %s", of, why)
		}
	}
	return ""
}

// wantsKey reports whether a key is to be made: what is to be hashed needs one, and there is none. One that somebody
// deletes is made again for as long as copies are checked with it.
func (b *Book) wantsKey(s *set, sp *space) bool {
	if !sp.sight[content.Secret].read || sp.objects[content.KeyRef] != nil {
		return false
	}
	hashes := s.rules != nil && content.Keyed(s.refs)
	if sp.key != nil {
		return hashes || s.keyed()
	}
	return hashes && !b.checksByKey(s.object.Namespace)
}

// checksByKey reports whether anything may be given in the namespace that has to be checked with its key.
func (b *Book) checksByKey(namespace string) bool {
	for _, s := range b.sets {
		if s.object == nil || s.object.Namespace != namespace {
			continue
		}
		for id, k := range s.known {
			if k.manifest != nil && content.Keyed(k.Refs()) && b.mayGive(s, id) {
				return true
			}
		}
	}
	return false
}

// mayGive reports whether pods of a content may be made, as far as that is known.
func (b *Book) mayGive(s *set, id string) bool {
	if s.info == nil {
		return true
	}
	if s.rollout == nil {
		return false
	}
	if _, known := b.rollout(s.object.UID); !known {
		return true
	}
	for _, revision := range b.Makes(s.object.UID) {
		if content.IDOf(revision) == id {
			return true
		}
	}
	return false
}

// keyed reports whether any content is of Secrets.
func (s *set) keyed() bool {
	for _, k := range s.known {
		if content.Keyed(k.Refs()) {
			return true
		}
	}
	return false
}

// keyFor returns the key for sums of such objects; errLater if it has to be made first.
func (b *Book) keyFor(namespace string, refs []content.Ref) ([]byte, error) {
	sp := b.space(namespace)
	switch {
	case !content.Keyed(refs):
		return nil, nil
	case sp.key != nil:
		return sp.key, nil
	case !sp.sight[content.Secret].read:
		return nil, errors.New("Secret " + content.KeyName + " is not read")
	case b.checksByKey(namespace):
		return nil, errors.New(keyLost)
	case sp.objects[content.KeyRef] != nil:
		return nil, errors.New("Secret " + content.KeyName + " holds no key; delete it, and another is made")
	}
	return nil, errLater
}

// listFlaw says why the list of a content is not that of its copies; "" if it is.
func (b *Book) listFlaw(s *set, k *known) string {
	switch {
	case !k.spoiled && b.adds(s, k):
		return ""
	case k.spoiled, k.manifest == nil:
		return spoiled
	}
	return b.space(s.object.Namespace).unlike(k, read(k.manifest))
}

// listOf is the list of a content.
func (s *set) listOf(id string) content.Ref {
	return content.Ref{Kind: content.ConfigMap, Name: content.ManifestName(s.object.Name, id)}
}

// unlike says why a copy or a list is not what its name says. One that is immutable stays what it was made as.
func (sp *space) unlike(k *known, o *object) string {
	if content.Keyed(k.Refs()) && o.Immutable && sp.keyed.After(o.meta.GetCreationTimestamp().Time) {
		return otherKey
	}
	return spoiled
}

// copied returns the member whose copy has an object's name, and a content that has it; nil for none.
func (s *set) copied(ref content.Ref) (*known, content.Member) {
	for _, k := range s.known {
		for _, m := range k.Members {
			if m.CopyRef() == ref {
				return k, m
			}
		}
	}
	return nil, content.Member{}
}

// lists reports whether an object has the name of the list of a content.
func (s *set) lists(ref content.Ref) bool {
	for id := range s.known {
		if ref == s.listOf(id) {
			return true
		}
	}
	return false
}

// keep remembers a copy that is gone until it is there again. What has its name, and is something else, never is.
func (b *Book) keep(s *set, of *content.Content, m content.Member, o *object, gone bool) {
	key, err := b.keyFor(s.object.Namespace, of.Refs())
	switch genuine := err == nil && s.genuine(key, m, o); {
	case gone && (genuine || err != nil && s.lost[o.Ref] == nil):
		s.lost[o.Ref] = o
	case !gone && genuine:
		delete(s.lost, o.Ref)
	}
}

// held is what a member of a content held, if that is known. What only has the name of its copy tells nothing.
func (b *Book) held(s *set, of *content.Content, m content.Member) *content.Object {
	if m.Absent {
		return &content.Object{}
	}
	sp, ref := b.space(s.object.Namespace), m.CopyRef()
	key, err := b.keyFor(s.object.Namespace, of.Refs())
	for _, o := range []*object{sp.objects[ref], s.lost[ref]} {
		if o != nil && err == nil && s.genuine(key, m, o) {
			return &o.Object
		}
	}
	latest := s.known[s.latest] // gone where content was turned off before it was given
	if o := sp.objects[m.Ref]; o != nil && latest != nil && slices.Contains(latest.Members, m) {
		return &o.Object
	}
	return nil
}
