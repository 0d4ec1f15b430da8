package indexset

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":        " 0 <nil>",
		"0":       "0 1 <nil>",
		"0,2-4,9": "0,2-4,9 5 <nil>",
		"1,2":     "1,2 2 <nil>",
		"1,2,3":   "1-3 3 <nil>",
		"1-2,3-5": "1-5 5 <nil>",
		"3,1":     " 0 non-increasing order, previous: 3, current: 1",
		"2-2":     " 0 non-increasing order, previous: 2, current: 2",
		"1,1":     " 0 non-increasing order, previous: 1, current: 1",
		"10":      ` 0 too large index: "10"`,
		"8-10":    ` 0 too large index: "10"`,
		"a":       ` 0 cannot convert string to integer for index: "a"`,
		"1,":      ` 0 cannot convert string to integer for index: ""`,
		"-1":      ` 0 cannot convert string to integer for index: ""`,
		"1-2-3":   ` 0 the fragment "1-2-3" violates the requirement that an index interval can have at most two parts separated by '-'`,
	} {
		s, err := Parse(text, 10)
		if got := fmt.Sprint(s, " ", s.Len(), " ", err); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestReadLeavesOut(t *testing.T) {
	for text, want := range map[string]string{"": "", "0-9": "0-4", "1,7": "1", "x,2": "2", "3,1": "1,3"} {
		if got := Read(text, 5).String(); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// What the set says is what a map of booleans says.
func TestAgainstMaps(t *testing.T) {
	const limit = 30
	indexes := rapid.SliceOf(rapid.IntRange(0, limit-1))
	rapid.Check(t, func(rt *rapid.T) {
		a, b := indexes.Draw(rt, "a"), indexes.Draw(rt, "b")
		of := func(keep func(i int) bool) (out []int) {
			for i := range limit {
				if keep(i) {
					out = append(out, i)
				}
			}
			return out
		}
		inA, inB := func(i int) bool { return slices.Contains(a, i) }, func(i int) bool { return slices.Contains(b, i) }
		members := func(s Set) []int { return of(s.Has) }
		sa, sb := Of(a...), Of(b...)
		same := func(what string, got, want []int) {
			if !slices.Equal(got, want) {
				rt.Fatalf("%s of %v and %v is %v, want %v", what, a, b, got, want)
			}
		}
		same("the first", members(sa), of(inA))
		same("the union", members(sa.Union(sb)), of(func(i int) bool { return inA(i) || inB(i) }))
		same("what is common", members(sa.Common(sb)), of(func(i int) bool { return inA(i) && inB(i) }))
		missing := of(func(i int) bool { return !inA(i) })
		n := rapid.IntRange(0, limit).Draw(rt, "n")
		same("what is missing", sa.FirstMissing(n, limit), missing[:min(n, len(missing))])
		if sa.Len() != len(of(inA)) {
			rt.Fatalf("%v has %d members", sa, sa.Len())
		}
		again, err := Parse(sa.String(), limit)
		if err != nil || !slices.Equal(again, sa) {
			rt.Fatalf("%v is read back as %v: %v", sa, again, err)
		}
		same("what is read back", members(Read(sa.String(), 10)), of(func(i int) bool { return i < 10 && inA(i) }))
	})
}
