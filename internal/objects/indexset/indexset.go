// Package indexset knows sets of the completion indexes of a Job, in the form that
// its status and its policies have: "1,3-5,7".
package indexset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Interval is every index from First to Last.
type Interval struct{ First, Last int }

// Set is a set of indexes: intervals in increasing order with gaps between them.
// The zero value is the empty set.
type Set []Interval

// Of returns the set of the indexes, which may come in any order and repeat.
func Of(indexes ...int) (s Set) {
	for _, i := range slices.Sorted(slices.Values(indexes)) {
		s = s.add(Interval{i, i})
	}
	return s
}

// Parse reads a set. Everything must be below completions and in increasing order.
func Parse(text string, completions int) (s Set, _ error) {
	if text == "" {
		return nil, nil
	}
	last := -1
	for part := range strings.SplitSeq(text, ",") {
		v, err := parseInterval(part, completions)
		if err != nil {
			return nil, err
		}
		if last >= v.First {
			return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, v.First)
		}
		last, s = v.Last, s.add(v)
	}
	return s, nil
}

func parseInterval(text string, completions int) (v Interval, err error) {
	first, last, ranged := strings.Cut(text, "-")
	if ranged && strings.Contains(last, "-") {
		return v, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts "+
			"separated by '-'", text)
	}
	v.First, err = parseIndex(first, completions)
	if err != nil || !ranged {
		return Interval{v.First, v.First}, err
	}
	v.Last, err = parseIndex(last, completions)
	if err != nil {
		return v, err
	}
	if v.First >= v.Last {
		return v, fmt.Errorf("non-increasing order, previous: %d, current: %d", v.First, v.Last)
	}
	return v, nil
}

func parseIndex(text string, completions int) (int, error) {
	i, err := strconv.Atoi(text)
	if err != nil || i < 0 {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if i >= completions {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return i, nil
}

// Read reads what a controller wrote earlier, when completions may have been
// another number: indexes that are not below it are left out, as is what cannot be
// read.
func Read(text string, completions int) (s Set) {
	const all = int(^uint(0) >> 1)
	for part := range strings.SplitSeq(text, ",") {
		v, err := parseInterval(part, all)
		if err == nil && v.First < completions {
			s = s.Union(Set{{v.First, min(v.Last, completions-1)}})
		}
	}
	return s
}

// add appends an interval that begins at or after the beginning of the last one.
func (s Set) add(v Interval) Set {
	if n := len(s); n > 0 && v.First <= s[n-1].Last+1 {
		s[n-1].Last = max(s[n-1].Last, v.Last)
		return s
	}
	return append(s, v)
}

// Union returns the set of what is in either set.
func (s Set) Union(o Set) (out Set) {
	for len(s) > 0 || len(o) > 0 {
		if len(o) == 0 || len(s) > 0 && s[0].First <= o[0].First {
			out, s = out.add(s[0]), s[1:]
		} else {
			out, o = out.add(o[0]), o[1:]
		}
	}
	return out
}

// Has reports whether an index is in the set.
func (s Set) Has(i int) bool {
	_, found := slices.BinarySearchFunc(s, i, func(v Interval, i int) int {
		switch {
		case v.Last < i:
			return -1
		case v.First > i:
			return 1
		}
		return 0
	})
	return found
}

// Len is the number of indexes in the set.
func (s Set) Len() (n int) {
	for _, v := range s {
		n += v.Last - v.First + 1
	}
	return n
}

// Common returns the indexes that are in both sets.
func (s Set) Common(o Set) (out Set) {
	for len(s) > 0 && len(o) > 0 {
		if first, last := max(s[0].First, o[0].First), min(s[0].Last, o[0].Last); first <= last {
			out = out.add(Interval{first, last})
		}
		if s[0].Last < o[0].Last {
			s = s[1:]
		} else {
			o = o[1:]
		}
	}
	return out
}

// FirstMissing returns the lowest indexes below limit that are not in the set, n of
// them at most.
func (s Set) FirstMissing(n, limit int) (out []int) {
	next := 0
	for _, v := range append(slices.Clone(s), Interval{limit, limit}) {
		for ; next < v.First && next < limit; next++ {
			if len(out) == n {
				return out
			}
			out = append(out, next)
		}
		next = max(next, v.Last+1)
	}
	return out
}

// String writes the set. Three indexes in a row and more are written as a range.
func (s Set) String() string {
	var b strings.Builder
	for i, v := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(v.First))
		switch {
		case v.Last == v.First+1:
			b.WriteByte(',')
		case v.Last > v.First:
			b.WriteByte('-')
		default:
			continue
		}
		b.WriteString(strconv.Itoa(v.Last))
	}
	return b.String()
}
