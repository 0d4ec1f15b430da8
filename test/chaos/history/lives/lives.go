// Package lives keeps what each object was from its beginning to its end; pure.
package lives

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Version is an object from one revision to the next one of its own.
type Version struct {
	From   int64
	Object metav1.Object
}

// Track is the life of one object.
type Track struct {
	Versions []Version
	Gone     int64 // the revision of its removal; 0 while it exists
}

// Add adds a change of an object, or its end, to the tracks of all.
func Add(tracks map[types.UID]*Track, v Version, gone bool) {
	uid := v.Object.GetUID()
	t := tracks[uid]
	if t == nil {
		t = &Track{}
		tracks[uid] = t
	}
	if gone {
		t.Gone = v.From
	}
	if !gone || len(t.Versions) == 0 {
		t.Versions = append(t.Versions, v)
	}
}

// First is the object as it began.
func (t *Track) First() metav1.Object { return t.Versions[0].Object }

// Last is the object as it was in the end.
func (t *Track) Last() metav1.Object { return t.Versions[len(t.Versions)-1].Object }

// At returns the object as it was at a revision, or nil.
func (t *Track) At(revision int64) metav1.Object {
	if t.Gone != 0 && revision >= t.Gone {
		return nil
	}
	i, found := slices.BinarySearchFunc(t.Versions, revision, func(v Version, r int64) int { return int(v.From - r) })
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	return t.Versions[i].Object
}

// Between returns the versions that were the newest at some moment from low to high.
func (t *Track) Between(low, high int64) (out []metav1.Object) {
	for i, v := range t.Versions {
		if v.From <= high && (i+1 == len(t.Versions) || t.Versions[i+1].From > low) {
			out = append(out, v.Object)
		}
	}
	return out
}

// Since is the revision of a version.
func (t *Track) Since(object metav1.Object) int64 {
	i := slices.IndexFunc(t.Versions, func(v Version) bool { return v.Object == object })
	return t.Versions[i].From
}

// NewestChange is the last revision at or before another at which the object changed.
func (t *Track) NewestChange(revision int64) int64 {
	if t.Gone != 0 && t.Gone <= revision {
		return t.Gone
	}
	newest := t.Versions[0].From
	for _, v := range t.Versions {
		if v.From <= revision {
			newest = v.From
		}
	}
	return newest
}

// Moments are the revisions from low to high at which any of the objects changed.
func Moments(low, high int64, tracks []*Track) []int64 {
	out := []int64{low}
	for _, t := range tracks {
		for _, v := range t.Versions {
			out = append(out, v.From)
		}
		out = append(out, t.Gone)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(m int64) bool { return m < low || m > high })
}

// InOrder returns tracks by their beginning.
func InOrder(tracks map[types.UID]*Track) []*Track {
	return slices.SortedFunc(maps.Values(tracks), func(a, b *Track) int {
		return cmp.Compare(a.Versions[0].From, b.Versions[0].From)
	})
}
