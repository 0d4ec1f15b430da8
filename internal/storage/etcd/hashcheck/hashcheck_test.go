package hashcheck

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// hashes are of compactions at 100, 200 and so on.
func hashes(sums ...uint32) (out []Hash) {
	for i, sum := range sums {
		if sum != 0 {
			out = append(out, Hash{Before: int64(i) * 100, Revision: int64(i+1) * 100, Sum: sum})
		}
	}
	return out
}

func TestJudge(t *testing.T) {
	const same, odd, disputed, unknown = Same, Odd, Disputed, Unknown
	for _, c := range []struct {
		name    string
		members []Member
		want    []State
	}{
		{"all are equal", []Member{{Hashes: hashes(1)}, {Hashes: hashes(1)}, {Hashes: hashes(1)}},
			[]State{same, same, same}},
		{"one of three differs", []Member{{Hashes: hashes(1)}, {Hashes: hashes(2)}, {Hashes: hashes(1)}},
			[]State{same, odd, same}},
		{"one of three differs, and another is silent", []Member{{Hashes: hashes(1)}, {Hashes: hashes(2)}, {}},
			[]State{disputed, disputed, unknown}},
		{"all of three differ", []Member{{Hashes: hashes(1)}, {Hashes: hashes(2)}, {Hashes: hashes(3)}},
			[]State{disputed, disputed, disputed}},
		{"two differ", []Member{{Hashes: hashes(1)}, {Hashes: hashes(2)}}, []State{disputed, disputed}},
		{"a learner does not settle it", []Member{{Hashes: hashes(1)}, {Hashes: hashes(2)},
			{Learner: true, Hashes: hashes(1)}},
			[]State{disputed, disputed, disputed}},
		{"a learner differs", []Member{{Hashes: hashes(1)}, {Hashes: hashes(1)}, {Learner: true, Hashes: hashes(2)}},
			[]State{same, same, odd}},
		{"a learner differs from the only one", []Member{{Hashes: hashes(1)}, {Learner: true, Hashes: hashes(2)}},
			[]State{same, odd}},
		{"two of five differ, and each otherwise", []Member{{Hashes: hashes(1)}, {Hashes: hashes(2)},
			{Hashes: hashes(3)},
			{Hashes: hashes(1)}, {Hashes: hashes(1)}}, []State{same, odd, odd, same, same}},
		{"nobody else answers", []Member{{Hashes: hashes(1)}, {}, {}}, []State{unknown, unknown, unknown}},
		{"the newest has not been hashed by all", []Member{{Hashes: hashes(1, 7)}, {Hashes: hashes(1, 7)},
			{Hashes: hashes(2, 0)}},
			[]State{same, same, odd}},
		{"what was overwritten meanwhile counts no more",
			[]Member{{Hashes: hashes(1, 7)}, {Hashes: hashes(1, 7)}, {Hashes: hashes(2, 7)}},
			[]State{same, same, same}},
		{"what was kept before is not the same", []Member{{Hashes: []Hash{{Before: 1, Revision: 100, Sum: 1}}},
			{Hashes: []Hash{{Before: 2, Revision: 100, Sum: 2}}}}, []State{unknown, unknown}},
		{"alone", []Member{{Hashes: hashes(1)}}, []State{same}},
	} {
		for i := range c.members {
			c.members[i].ID = fmt.Sprint("m", i)
		}
		got := Judge(c.members)
		for i, m := range c.members {
			if got[m.ID].State != c.want[i] {
				t.Errorf("%s: %s stands %v, want %v", c.name, m.ID, got[m.ID], c.want[i])
			}
		}
	}
}

// However many are corrupt, fewer than half: none of the others is ever found odd, and once all have answered all that
// are corrupt are found.
func TestFewerThanHalfAreFound(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		members := make([]Member, 1+random.IntN(7))
		corrupt := random.IntN(len(members)+1) / 2
		if 2*corrupt >= len(members) {
			corrupt = 0
		}
		silent := 0
		for i := range members {
			members[i].ID = fmt.Sprint("m", i)
			sum := uint32(1)
			if i < corrupt {
				sum = 2 + random.Uint32N(2)
			}
			if random.IntN(4) == 0 {
				silent++
				continue
			}
			members[i].Hashes = hashes(sum, sum)
		}
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		verdicts := Judge(members)
		for _, id := range With(Odd, verdicts) {
			if id >= fmt.Sprint("m", corrupt) {
				t.Errorf("seed %d: %s is in order, and found odd: %v", seed, id, verdicts)
			}
		}
		if found := With(Odd, verdicts); silent == 0 && len(found) != corrupt {
			t.Errorf("seed %d: %v are found, and %d are corrupt", seed, found, corrupt)
		}
	}
}
