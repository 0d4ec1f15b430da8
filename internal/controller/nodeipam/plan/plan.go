// Package plan divides the cluster's pod network into equal blocks, one per node.
//
// The package is pure; one owner at a time.
package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
)

// ErrFull means that every block is taken.
var ErrFull = errors.New("no free block is left")

// maxBlockBits bounds the bitmap: 2^20 nodes are more than any cluster has.
const maxBlockBits = 20

// Blocks tells which blocks of a network are taken.
type Blocks struct {
	network netip.Prefix
	bits    int // length of a block's prefix
	count   int
	taken   []uint64
	next    int // where the next search starts, so that a freed block rests a while
}

// NewBlocks divides network into blocks with a prefix of blockBits bits.
func NewBlocks(network netip.Prefix, blockBits int) (*Blocks, error) {
	network = network.Masked()
	if !network.IsValid() {
		return nil, errors.New("the cluster network is not a valid CIDR")
	}
	if blockBits < network.Bits() || blockBits > network.Addr().BitLen() {
		return nil, fmt.Errorf("a block of /%d does not fit into the cluster network %s", blockBits, network)
	}
	width := blockBits - network.Bits()
	if width > maxBlockBits {
		return nil, fmt.Errorf(
			"the cluster network %s holds 2^%d blocks of /%d; at most 2^%d are supported",
			network, width, blockBits, maxBlockBits,
		)
	}
	count := 1 << width
	return &Blocks{network: network, bits: blockBits, count: count, taken: make([]uint64, (count+63)/64)}, nil
}

// Network is what is divided.
func (b *Blocks) Network() netip.Prefix { return b.network }

// Take takes the next free block, or fails with ErrFull.
func (b *Blocks) Take() (netip.Prefix, error) {
	for i := 0; i < b.count; i++ {
		index := (b.next + i) % b.count
		word := b.taken[index/64]
		if word == ^uint64(0) {
			i += 63 - index%64 // nothing is free up to the end of this word
			continue
		}
		if word&(1<<(index%64)) == 0 {
			b.taken[index/64] |= 1 << (index % 64)
			b.next = (index + 1) % b.count
			return b.block(index), nil
		}
	}
	return netip.Prefix{}, ErrFull
}

// Occupy takes every block that p touches, because somebody uses p already. False if p
// lies outside the network, or one of the blocks was taken before.
func (b *Blocks) Occupy(p netip.Prefix) bool {
	first, last, ok := b.span(p)
	if !ok {
		return false
	}
	free := true
	for i := first; i <= last; i++ {
		free = free && b.taken[i/64]&(1<<(i%64)) == 0
		b.taken[i/64] |= 1 << (i % 64)
	}
	return free
}

// Release frees every block that p touches.
func (b *Blocks) Release(p netip.Prefix) {
	first, last, ok := b.span(p)
	if !ok {
		return
	}
	for i := first; i <= last; i++ {
		b.taken[i/64] &^= 1 << (i % 64)
	}
}

// Count is the number of blocks.
func (b *Blocks) Count() int { return b.count }

// Taken is the number of blocks in use.
func (b *Blocks) Taken() int {
	n := 0
	for _, word := range b.taken {
		n += bits.OnesCount64(word)
	}
	return n
}

// block is the index-th block of the network.
func (b *Blocks) block(index int) netip.Prefix {
	raw := b.network.Addr().As16()
	high, low := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	shiftHigh, shiftLow := shift128(uint64(index), b.hostBits())
	binary.BigEndian.PutUint64(raw[:8], high|shiftHigh)
	binary.BigEndian.PutUint64(raw[8:], low|shiftLow)
	addr := netip.AddrFrom16(raw)
	if b.network.Addr().Is4() {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, b.bits)
}

// span is the range of blocks that p touches.
func (b *Blocks) span(p netip.Prefix) (first, last int, ok bool) {
	if !p.IsValid() || p.Addr().Is4() != b.network.Addr().Is4() || !b.network.Overlaps(p) {
		return 0, 0, false
	}
	if p.Bits() <= b.network.Bits() {
		return 0, b.count - 1, true
	}
	first = b.index(p.Masked().Addr())
	if p.Bits() >= b.bits {
		return first, first, true
	}
	return first, first + 1<<(b.bits-p.Bits()) - 1, true
}

func (b *Blocks) index(addr netip.Addr) int {
	raw := addr.As16()
	high, low := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	host := b.hostBits()
	var shifted uint64
	if host >= 64 {
		shifted = high >> (host - 64)
	} else {
		shifted = low>>host | high<<(64-host) // a shift by 64 gives zero
	}
	return int(shifted & uint64(b.count-1))
}

// hostBits is the length of the part of an address that lies inside a block.
func (b *Blocks) hostBits() int {
	return b.network.Addr().BitLen() - b.bits
}

// shift128 is v<<n as a number of 128 bits.
func shift128(v uint64, n int) (high, low uint64) {
	if n >= 64 {
		return v << (n - 64), 0
	}
	return v >> (64 - n), v << n
}
