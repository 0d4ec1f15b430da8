// Package userns gives the pods that want users of their own their part of the
// machine's user IDs. No two pods have a part in common, nor does a pod share one with
// the machine's own users, so that whoever breaks out of a pod is nobody.
//
// The package is pure; one owner at a time.
package userns

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Size is how many IDs a pod gets: those of 16 bits, which images use.
const Size = 65536

// most is how many parts there are: far more than a node has pods. The first part is
// the machine's own.
const most = 1024

// ErrFull means that every part is a pod's.
var ErrFull = errors.New("no user IDs are left for pods with users of their own")

// Parts says which pod has which part.
type Parts struct {
	owners [most + 1]types.UID // by number, the first is nobody's
	parts  map[types.UID]int
}

// New returns Parts of which none is taken.
func New() *Parts { return &Parts{parts: map[types.UID]int{}} }

// Of is the first ID of the pod's part, false if it has none.
func (p *Parts) Of(uid types.UID) (uint32, bool) {
	n, ok := p.parts[uid]
	return uint32(n) * Size, ok
}

// Take gives the pod a part, the one that it has if it has one, and returns its first ID.
func (p *Parts) Take(uid types.UID) (uint32, error) {
	if first, ok := p.Of(uid); ok {
		return first, nil
	}
	for n := 1; n <= most; n++ {
		if p.owners[n] == "" {
			p.owners[n], p.parts[uid] = uid, n
			return uint32(n) * Size, nil
		}
	}
	return 0, ErrFull
}

// Hold notes that the pod has the part from that ID on, from an earlier run. An error
// changes nothing.
func (p *Parts) Hold(uid types.UID, first uint32) error {
	n := int(first / Size)
	switch {
	case first%Size != 0 || n < 1 || n > most:
		return fmt.Errorf("user IDs from %d on are not a part for pods", first)
	case p.owners[n] != "" && p.owners[n] != uid:
		return fmt.Errorf("user IDs from %d on are those of pod %s and of pod %s", first, p.owners[n], uid)
	}
	if old, ok := p.parts[uid]; ok && old != n {
		return fmt.Errorf("pod %s has user IDs from %d on and from %d on", uid, uint32(old)*Size, first)
	}
	p.owners[n], p.parts[uid] = uid, n
	return nil
}

// Free takes the pod's part back, if it has one.
func (p *Parts) Free(uid types.UID) {
	if n, ok := p.parts[uid]; ok {
		p.owners[n] = ""
		delete(p.parts, uid)
	}
}
