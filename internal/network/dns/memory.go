package dns

import (
	"sync/atomic"

	"github.com/everynode/everynode/internal/network/dns/zone"
)

// memory is where answers come from: the node's caches, or, until these know
// everything, what the node knew in an earlier run.
type memory struct {
	synced func() bool
	live   *zone.Zone
	known  atomic.Pointer[zone.Zone]
}

func newMemory(config Config) (*memory, error) {
	live, err := config.Objects.live()
	if err != nil {
		return nil, err
	}
	over := func(source zone.Source) *zone.Zone {
		return zone.New(config.Domain, config.Addresses[0].Addr(), source)
	}
	m := &memory{synced: config.Objects.synced, live: over(live)}
	if config.Known != nil {
		known, err := config.Known.stores()
		if err != nil {
			return nil, err
		}
		m.known.Store(over(known))
	}
	return m, nil
}

// zone is the one to ask; knows is false if that a name is unknown means nothing.
func (m *memory) zone() (z *zone.Zone, knows bool) {
	if m.synced() {
		m.known.Store(nil)
		return m.live, true
	}
	if known := m.known.Load(); known != nil {
		return known, true
	}
	return m.live, m.synced()
}
