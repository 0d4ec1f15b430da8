package plan

import (
	"errors"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestNewBlocksRefuses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		network string
		bits    int
	}{
		{"block larger than the network", "10.244.0.0/16", 15},
		{"block smaller than an address", "10.244.0.0/16", 33},
		{"too many blocks", "fd00::/48", 80},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := NewBlocks(netip.MustParsePrefix(tc.network), tc.bits); err == nil {
				t.Errorf("NewBlocks(%s, %d) succeeded", tc.network, tc.bits)
			}
		})
	}
	if _, err := NewBlocks(netip.Prefix{}, 24); err == nil {
		t.Error("NewBlocks of no network succeeded")
	}
}

func TestTakeGivesBlocksInOrderAndThenFails(t *testing.T) {
	for _, tc := range []struct {
		network string
		bits    int
		want    []string
	}{
		{"10.244.0.0/22", 24, []string{"10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"}},
		{"10.244.7.9/31", 32, []string{"10.244.7.8/32", "10.244.7.9/32"}},
		{"10.0.0.0/24", 24, []string{"10.0.0.0/24"}},
		{"fd00:10::/62", 64, []string{"fd00:10::/64", "fd00:10:0:1::/64", "fd00:10:0:2::/64", "fd00:10:0:3::/64"}},
		{"fd00:10::/126", 127, []string{"fd00:10::/127", "fd00:10::2/127"}},
		{"fd00:10::/47", 48, []string{"fd00:10::/48", "fd00:10:1::/48"}},
	} {
		t.Run(tc.network, func(t *testing.T) {
			b, err := NewBlocks(netip.MustParsePrefix(tc.network), tc.bits)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				got, err := b.Take()
				if err != nil || got.String() != want {
					t.Errorf("Take() = %v, %v; want %s", got, err, want)
				}
			}
			if got, err := b.Take(); !errors.Is(err, ErrFull) {
				t.Errorf("Take() of a full network = %v, %v", got, err)
			}
		})
	}
}

func TestOccupyAForeignSize(t *testing.T) {
	b, err := NewBlocks(netip.MustParsePrefix("10.244.0.0/21"), 24)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Occupy(netip.MustParsePrefix("10.244.2.0/23")) {
		t.Error("a free range of two blocks was called taken")
	}
	if b.Occupy(netip.MustParsePrefix("10.244.3.128/25")) {
		t.Error("half of a taken block was called free")
	}
	if b.Occupy(netip.MustParsePrefix("10.245.0.0/24")) || b.Occupy(netip.MustParsePrefix("fd00::/64")) {
		t.Error("a range outside the network was occupied")
	}
	if got := b.Taken(); got != 2 {
		t.Errorf("%d blocks taken, want 2", got)
	}
	b.Occupy(netip.MustParsePrefix("10.0.0.0/8"))
	if b.Taken() != 8 {
		t.Errorf("a range around the network took %d of 8 blocks", b.Taken())
	}
}

// TestBlocksAreUnique: whatever is taken, occupied and released, no two holders ever
// share an address, every block lies in the network, and Take fails only when all are held.
func TestBlocksAreUnique(t *testing.T) {
	networks := []struct {
		network string
		bits    int
	}{{"10.244.0.0/20", 24}, {"10.244.0.0/16", 23}, {"fd00:1::/60", 64}, {"fd00::/120", 124}}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom(networks).Draw(t, "network")
		network := netip.MustParsePrefix(n.network)
		b, err := NewBlocks(network, n.bits)
		if err != nil {
			t.Fatal(err)
		}
		size := 1 << (n.bits - network.Bits())
		var held []netip.Prefix
		hold := func(t *rapid.T, p netip.Prefix) {
			if !network.Contains(p.Addr()) || p.Bits() != n.bits {
				t.Fatalf("%s is no block of %s", p, network)
			}
			for _, other := range held {
				if other.Overlaps(p) {
					t.Fatalf("%s overlaps %s, which is held", p, other)
				}
			}
			held = append(held, p)
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				p, err := b.Take()
				switch {
				case err == nil:
					hold(t, p)
				case len(held) < size:
					t.Fatalf("Take() failed with %d of %d blocks held: %v", len(held), size, err)
				}
			},
			"occupy": func(t *rapid.T) {
				p := b.block(rapid.IntRange(0, size-1).Draw(t, "block"))
				if b.Occupy(p) {
					hold(t, p)
				}
			},
			"release": func(t *rapid.T) {
				if len(held) > 0 {
					i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
					b.Release(held[i])
					held = append(held[:i], held[i+1:]...)
				}
			},
			"": func(t *rapid.T) {
				if b.Taken() != len(held) {
					t.Fatalf("%d taken, %d held", b.Taken(), len(held))
				}
			},
		})
	})
}
