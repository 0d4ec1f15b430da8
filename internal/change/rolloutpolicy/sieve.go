package rolloutpolicy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/google/btree"
)

// sieve lets some of the nodes that are offered to it into its wave: those with the
// lowest hash, so many of each pool as its quota says.
type sieve struct {
	wave   *Wave
	pools  []*pool // in the order of their hash
	placed map[*member]*pool
}

// pool is the offered nodes with one value of the label SpreadBy.
type pool struct {
	value   string
	hash    uint64
	quota   int
	in, out *btree.BTreeG[ranked]
}

func (p *pool) size() int { return p.in.Len() + p.out.Len() }

// ranked is a node with its place in the order.
type ranked struct {
	hash   uint64
	member *member
}

func newSieve(w *Wave) *sieve { return &sieve{wave: w, placed: map[*member]*pool{}} }

// rank is the same in every process. Neighbouring names must be far apart, which
// cheaper hashes do not promise.
func (s *sieve) rank(name string) uint64 {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s.wave.Name))))
	h.Write([]byte(s.wave.Name))
	h.Write([]byte(name))
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// ranked is the member with its rank, which it keeps: a ramp offers it to many sieves of one wave.
func (s *sieve) ranked(m *member) ranked {
	if m.hashedFor != s.wave.Name {
		m.hashedFor, m.hash = s.wave.Name, s.rank(m.name)
	}
	return ranked{m.hash, m}
}

// moves are the nodes, beside the one that was added or removed, that came in or
// had to go by it.
type moves struct{ in, out []*member }

// add offers a node.
func (s *sieve) add(m *member) moves {
	p := s.pool(m.labels[s.wave.SpreadBy])
	s.placed[m] = p
	r := s.ranked(m)
	if worst, ok := p.in.Max(); ok && before(r, worst) {
		p.in.ReplaceOrInsert(r)
	} else {
		p.out.ReplaceOrInsert(r)
	}
	return s.settle(p, m)
}

// remove takes an offered node back.
func (s *sieve) remove(m *member) moves {
	p := s.placed[m]
	if p == nil {
		return moves{}
	}
	delete(s.placed, m)
	r := s.ranked(m)
	p.in.Delete(r)
	p.out.Delete(r)
	return s.settle(p, m)
}

// isOut reports whether an offered node did not come in.
func (s *sieve) isOut(m *member) bool {
	p := s.placed[m]
	return p == nil || p.out.Has(s.ranked(m))
}

func (s *sieve) pool(value string) *pool {
	for _, p := range s.pools {
		if p.value == value {
			return p
		}
	}
	p := &pool{value: value, hash: s.rank("=" + value), in: btree.NewG(8, before), out: btree.NewG(8, before)}
	i, _ := slices.BinarySearchFunc(s.pools, p, func(a, b *pool) int { return cmp.Compare(a.hash, b.hash) })
	s.pools = slices.Insert(s.pools, i, p)
	return p
}

// settle brings quotas and pools in line after the size of one pool has changed by
// a node.
func (s *sieve) settle(p *pool, by *member) moves {
	var out moves
	if s.wave.Percent > 0 {
		p.quota = (s.wave.Percent*p.size() + 99) / 100
		p.fill(by, &out)
	} else {
		s.divide()
		for _, o := range s.pools {
			o.fill(by, &out)
		}
	}
	if p.size() == 0 {
		s.pools = slices.DeleteFunc(s.pools, func(o *pool) bool { return o == p })
	}
	return out
}

// divide gives the wave's nodes to the pools in turn, until there are enough or
// each pool has given all it has.
func (s *sieve) divide() {
	left, open := s.wave.Count, len(s.pools)
	for _, p := range s.pools {
		p.quota = 0
	}
	for left > 0 && open > 0 {
		share := max(left/open, 1)
		open = 0
		for _, p := range s.pools {
			give := min(share, left, p.size()-p.quota)
			p.quota += give
			left -= give
			if p.quota < p.size() {
				open++
			}
		}
	}
}

// fill brings the number of those inside to the quota.
func (p *pool) fill(by *member, out *moves) {
	for p.in.Len() > p.quota {
		r, _ := p.in.DeleteMax()
		p.out.ReplaceOrInsert(r)
		if r.member != by {
			out.out = append(out.out, r.member)
		}
	}
	for p.in.Len() < p.quota && p.out.Len() > 0 {
		r, _ := p.out.DeleteMin()
		p.in.ReplaceOrInsert(r)
		if r.member != by {
			out.in = append(out.in, r.member)
		}
	}
}

func before(a, b ranked) bool {
	return a.hash < b.hash || a.hash == b.hash && a.member.name < b.member.name
}
