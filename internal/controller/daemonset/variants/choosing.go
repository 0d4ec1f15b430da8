package variants

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant"
)

// TellUnread says why variants cannot be read now; "" once all have been read. Until then a DaemonSet that has variants
// keeps those, and one that has none is looked after without.
func (b *Book) TellUnread(why string) {
	if b.unread == why {
		return
	}
	b.unread = why
	b.version++
	b.moved = true
	for uid, s := range b.sets {
		if s.object != nil {
			b.dirty[uid] = true
		}
	}
}

// foreign reports whether another controller makes the pods of a DaemonSet and nobody says what they are to be like.
func (b *Book) foreign(s *set) bool { return b.Guest && !s.followed }

// check finds what a schema of another API cannot refuse, and what a newer program has written.
func (b *Book) check(v *v1alpha1.DaemonSetVariant) {
	if err := variant.Check(v); err != nil {
		b.wrong[v.UID] = err.Error()
	}
}

// choose returns the variants of a DaemonSet as they are now. The error says why they cannot be used.
func (b *Book) choose(s *set) (*variant.Set, error) {
	switch {
	case b.foreign(s):
		return nil, nil
	case b.unread != "" && (s.newest != nil || len(s.known) > 0):
		return nil, errors.New(b.unread)
	case b.unread != "":
		return nil, nil
	}
	of, err := b.choosing(s.object)
	if err != nil {
		return nil, err
	}
	return variant.NewSet(of)
}

// choosing are the variants that choose a DaemonSet. The error names the first that no server should have taken.
func (b *Book) choosing(ds *appsv1.DaemonSet) (out []variant.Variant, err error) {
	bad := map[string]string{}
	for uid, v := range b.all {
		if v.Namespace != ds.Namespace || !variant.Selects(v, ds.Labels) {
			continue
		}
		out = append(out, variant.Of(v))
		if why := b.wrong[uid]; why != "" {
			bad[v.Name] = why
		}
	}
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		return nil, fmt.Errorf("DaemonSetVariant %s: %s", name, bad[name])
	}
	return out, nil
}
