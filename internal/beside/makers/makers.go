// Package makers knows by which account the newest pod of each DaemonSet was made, as far as the webhook says so on it.
package makers

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
)

// Book holds when pods were made last, and by whom. The zero value is empty. Any goroutine may use it.
type Book struct {
	mu   sync.Mutex
	sets map[types.UID]last
}

// last is when a DaemonSet's pods were made last, by the account that is to make them and by another one.
type last struct {
	own, other time.Time
	account    string
}

// Set tells of a pod, and reports whether another account makes the DaemonSet's pods since then, or not any more. maker
// is the account that is to make them.
func (b *Book) Set(p *corev1.Pod, maker string) bool {
	of := belongings.OwnerOf(p)
	if of == "" {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.sets[of]
	before, made := m.stranger(), p.CreationTimestamp.Time
	account := p.Annotations[admit.MadeBy]
	switch {
	case account == "" || account == maker:
		if made.After(m.own) {
			m.own = made
		}
	case !made.Before(m.other):
		m.other, m.account = made, account
	}
	if b.sets == nil {
		b.sets = map[types.UID]last{}
	}
	b.sets[of] = m
	return m.stranger() != before
}

// stranger is the other account, if it has made the newest pod; "" if it has not.
func (m last) stranger() string {
	if m.account == "" || m.other.Before(m.own) {
		return ""
	}
	return m.account
}

// Other returns an error while another account than maker makes a DaemonSet's pods. The webhook does not answer for
// those, so each that is deleted would come back with the newest revision, whatever its node's is.
func (b *Book) Other(set types.UID, maker string) error {
	b.mu.Lock()
	account := b.sets[set].stranger()
	b.mu.Unlock()
	if account == "" {
		return nil
	}
	return fmt.Errorf("its newest pod was made by the account %q, and --daemonset-account is %q: pods are given no "+
		"revision, and none is replaced; start the controller with the account of the cluster's DaemonSet controller",
		account, maker)
}

// Forget forgets a DaemonSet.
func (b *Book) Forget(set types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sets, set)
}
