package userns

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// Whatever is taken, held from earlier and freed: no part is two pods', none the machine's,
// and a pod keeps the one that it has.
func TestPartsAreApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, have := New(), map[types.UID]uint32{}
		firsts := rapid.OneOf(rapid.SampledFrom([]uint32{0, 1, Size - 1, Size, Size + 1, 2 * Size, 3 * Size, most * Size, (most + 1) * Size, 1<<32 - Size}), rapid.Uint32())
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			uid := types.UID(fmt.Sprint(rapid.IntRange(1, 12).Draw(t, "pod")))
			old, had := have[uid]
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				first, err := p.Take(uid)
				if err != nil || had && first != old {
					t.Fatalf("pod %s gets %d, %v; it had %d", uid, first, err, old)
				}
				have[uid] = first
			case 1:
				first := firsts.Draw(t, "first")
				if err := p.Hold(uid, first); err == nil {
					have[uid] = first
				}
				if had && have[uid] != old {
					t.Fatalf("pod %s had %d and has %d", uid, old, have[uid])
				}
			case 2:
				p.Free(uid)
				delete(have, uid)
			}
			owners := map[uint32]types.UID{}
			for uid, first := range have {
				if got, ok := p.Of(uid); !ok || got != first {
					t.Fatalf("pod %s has %d, %v; want %d", uid, got, ok, first)
				}
				if first < Size || first%Size != 0 || uint64(first)+Size > (most+1)*Size {
					t.Fatalf("pod %s has IDs from %d on", uid, first)
				}
				if other, ok := owners[first]; ok {
					t.Fatalf("pods %s and %s both have %d", uid, other, first)
				}
				owners[first] = uid
			}
			if len(p.parts) != len(have) {
				t.Fatalf("%d pods have parts, want %d", len(p.parts), len(have))
			}
		}
	})
}

func TestAllPartsAreTaken(t *testing.T) {
	p := New()
	for i := range most {
		if _, err := p.Take(types.UID(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Take("more"); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	p.Free("7")
	if first, err := p.Take("more"); err != nil || first != 8*Size {
		t.Errorf("after one is free: %d, %v", first, err)
	}
}
