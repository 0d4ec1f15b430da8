package callers

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// mayFail is how many tokens of one address may be nobody's in a row. Each second it may be one more.
	mayFail = 20
	// maxStrangers is of how many addresses that is remembered.
	maxStrangers = 4096
)

// strangers bounds how often the API server is asked about tokens that are nobody's, for each address that they come
// from. Whoever has made up one can make up others, and each would be a question of this node's to the API server.
type strangers struct {
	mu sync.Mutex
	of *lru.Cache
}

func newStrangers() *strangers { return &strangers{of: lru.New(maxStrangers)} }

// tires reports whether so many tokens of an address were nobody's that its next one is not looked at.
func (s *strangers) tires(from netip.Addr, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.of.Get(network(from))
	if !ok {
		return false
	}
	limiter, _ := known.(*rate.Limiter)
	return limiter.TokensAt(now) < 1
}

// failed notes that a token of an address was nobody's.
func (s *strangers) failed(from netip.Addr, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.of.Get(network(from))
	if !ok {
		known = rate.NewLimiter(1, mayFail)
		s.of.Add(network(from), known)
	}
	limiter, _ := known.(*rate.Limiter)
	limiter.AllowN(now, 1)
}

// network is what one machine may have addresses of: with IPv6 those of a link.
func network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a, bits).Masked()
}
