package dns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// echoPatience is how long an echo may take.
	echoPatience = 2 * time.Second
	// echoAgain is how often a name server that asked this one back is asked again: its configuration may be mended.
	echoAgain = time.Minute
)

// echoes are questions that nobody but this name server asks. One that comes in was asked by who got it from here.
type echoes struct {
	mu sync.Mutex
	// heard are those that are out, by name, and whether they have come in.
	heard map[string]bool
}

// hears reports whether a question is an echo, and notes that it came in.
func (e *echoes) hears(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, out := e.heard[name]
	if out {
		e.heard[name] = true
	}
	return out
}

// comesBack sends a name server, a host:port, an echo, and reports whether it came in.
func (e *echoes) comesBack(ctx context.Context, server string) bool {
	// Digits have no case, which resolvers change at will. The name is below no domain, so that no rule for a domain
	// holds for it.
	name := fmt.Sprintf("%d.%d.", rand.Uint64(), rand.Uint64())
	e.mu.Lock()
	if e.heard == nil {
		e.heard = map[string]bool{}
	}
	e.heard[name] = false
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, echoPatience)
	defer cancel()
	// What is answered, if anything, does not matter.
	_, _, _ = (&dns.Client{Timeout: echoPatience}).ExchangeContext(
		ctx, new(dns.Msg).SetQuestion(name, dns.TypeHINFO), server,
	)
	e.mu.Lock()
	defer e.mu.Unlock()
	back := e.heard[name]
	delete(e.heard, name)
	return back
}
