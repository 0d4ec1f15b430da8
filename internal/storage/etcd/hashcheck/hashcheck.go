// Package hashcheck decides from the hashes of the members' databases which of them holds something else than the
// others, as after a flipped bit, a bad disk or an error in how changes are applied.
//
// Each member hashes what it keeps whenever the database is compacted. All members compact at the same revisions, and
// what they hold up to one is then the same, so that hashes of the same compaction must be equal.
package hashcheck

import (
	"cmp"
	"slices"
)

// Hash is what a member held at one compaction.
type Hash struct {
	// Before is the revision of the compaction before, and Revision that of this one. Only hashes of which both are
	// equal are of the same content.
	Before, Revision int64
	Sum              uint32
}

// Member is one whose hashes are compared.
type Member struct {
	ID string
	// Learner has no vote on what is right: it copied its data from one of the others.
	Learner bool
	// Hashes are in any order; none of a member that does not answer.
	Hashes []Hash
}

// State is how a member stands.
type State int

const (
	// Unknown is a member of which nothing can be said.
	Unknown State = iota
	// Same is one that holds what a majority holds.
	Same
	// Odd is one that holds something else than a majority that agrees.
	Odd
	// Disputed is one of several that differ while no majority agrees.
	Disputed
)

// Verdict is how a member stands, and at which compaction that was seen.
type Verdict struct {
	State    State
	Revision int64
}

// Judge says of each member, by ID, how it stands at the newest compaction that tells. A majority is one of all that
// have a vote, also of those that do not answer: otherwise two that differ could each find itself right.
func Judge(members []Member) map[string]Verdict {
	voters := 0
	at := map[[2]int64][]held{}
	for _, m := range members {
		if !m.Learner {
			voters++
		}
		for _, h := range m.Hashes {
			compaction := [2]int64{h.Revision, h.Before}
			at[compaction] = append(at[compaction], held{m.ID, m.Learner, h.Sum})
		}
	}
	out := make(map[string]Verdict, len(members))
	for compaction, all := range at {
		for id, state := range judge(all, voters/2+1) {
			if state != Unknown && compaction[0] >= out[id].Revision {
				out[id] = Verdict{state, compaction[0]}
			}
		}
	}
	return out
}

// held is what one member held at a compaction.
type held struct {
	id      string
	learner bool
	sum     uint32
}

// judge compares those who were hashed at one compaction.
func judge(all []held, majority int) map[string]State {
	votes := map[uint32]int{}
	for _, h := range all {
		if h.learner {
			votes[h.sum] += 0
			continue
		}
		votes[h.sum]++
	}
	out := make(map[string]State, len(all))
	for _, h := range all {
		switch {
		case votes[h.sum] >= majority:
			out[h.id] = Same
		case slices.ContainsFunc(all, func(o held) bool { return votes[o.sum] >= majority }):
			out[h.id] = Odd
		case len(votes) > 1:
			out[h.id] = Disputed
		}
	}
	return out
}

// With returns the IDs of the members that stand like that, in order.
func With(state State, verdicts map[string]Verdict) (ids []string) {
	for id, v := range verdicts {
		if v.State == state {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, cmp.Compare)
	return ids
}
