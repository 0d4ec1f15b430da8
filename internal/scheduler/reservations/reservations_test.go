package reservations

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// oracle is the same as a Book, by a look at all that ever was.
type oracle struct {
	lasts time.Duration
	all   []*made
}

type made struct {
	uid     types.UID
	name    string
	until   time.Time
	removed bool
}

func (o *oracle) kept() []*made {
	return slices.DeleteFunc(slices.Clone(o.all), func(m *made) bool { return m.removed })
}

func (o *oracle) add(uid types.UID, name string, now time.Time) {
	o.all = append(o.all, &made{uid: uid, name: name, until: now.Add(o.lasts)})
}

func (o *oracle) named(name string) (last types.UID) {
	for _, m := range o.kept() {
		if m.name == name {
			last = m.uid
		}
	}
	return last
}

// seen takes out the pod, and all that were to have its name before.
func (o *oracle) seen(uid types.UID) {
	for i, m := range o.all {
		if m.uid != uid || m.removed {
			continue
		}
		for _, before := range o.all[:i+1] {
			before.removed = before.removed || before.name == m.name
		}
	}
}

// refused takes out the pod alone. Where it was the last of its name, the one before is there again.
func (o *oracle) refused(uid types.UID) (again types.UID) {
	for _, m := range o.kept() {
		if m.uid == uid {
			last := o.named(m.name)
			m.removed = true
			if last == uid {
				return o.named(m.name)
			}
		}
	}
	return ""
}

func (o *oracle) due(now time.Time) (ended []types.UID) {
	for _, m := range o.kept() {
		if !m.until.After(now) {
			m.removed = true
			ended = append(ended, m.uid)
		}
	}
	return ended
}

func (o *oracle) next() (time.Time, bool) {
	kept := o.kept()
	if len(kept) == 0 {
		return time.Time{}, false
	}
	return kept[0].until, true
}

// A book knows after any history just what a look at the whole of it tells, and keeps nothing of what is over.
func TestBookAgainstAnOracle(t *testing.T) {
	for seed := range int64(200) {
		random := rand.New(rand.NewSource(seed))
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		b, o := New[types.UID](10*time.Second), &oracle{lasts: 10 * time.Second}
		var uids []types.UID
		for step := range 300 {
			name := fmt.Sprint("ns/", random.Intn(6))
			switch random.Intn(5) {
			case 0, 1:
				uid := types.UID(fmt.Sprint("uid-", step))
				uids = append(uids, uid)
				b.Add(uid, name, uid, now)
				o.add(uid, name, now)
			case 2:
				if len(uids) > 0 {
					uid := uids[random.Intn(len(uids))]
					b.Seen(uid)
					o.seen(uid)
				}
			case 4:
				if len(uids) > 0 {
					uid := uids[random.Intn(len(uids))]
					got, room := b.Refused(uid)
					if want := o.refused(uid); got != want || room != want {
						t.Fatalf("seed %d, step %d: after %s, %s has %s again, want %s", seed, step, uid, got, room, want)
					}
				}
			case 3:
				now = now.Add(time.Duration(random.Intn(4)) * time.Second)
				if got, want := b.Due(now), o.due(now); !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d: %v have ended, want %v", seed, step, got, want)
				}
			}
			if got, room := b.Named(name); got != o.named(name) || room != got {
				t.Fatalf("seed %d, step %d: %s is %q with %q, want %q", seed, step, name, got, room, o.named(name))
			}
			at, some := b.Next()
			wantAt, wantSome := o.next()
			if at != wantAt || some != wantSome {
				t.Fatalf("seed %d, step %d: the next one ends at %v, %v, want %v, %v", seed, step, at, some, wantAt, wantSome)
			}
			names := map[string]bool{}
			for _, m := range o.kept() {
				names[m.name] = true
			}
			if n := len(o.kept()); len(b.kept) != n || len(b.newest) != len(names) {
				t.Fatalf("seed %d, step %d: %d are kept and %d named, want %d and %d", seed, step, len(b.kept), len(b.newest), n,
					len(names))
			}
		}
		b.Due(now.Add(time.Minute))
		if len(b.kept)+len(b.newest)+len(b.order) > 0 {
			t.Fatalf("seed %d: something is left: %+v", seed, b)
		}
	}
}
