package client

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/change/prepull"
	"github.com/everynode/everynode/internal/node/imagepull"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

const (
	// tellEvery is how often it is said who still pulls, when nobody ended meanwhile.
	tellEvery = 10 * time.Second
	// maxNamed is how many of them are named.
	maxNamed = 5
)

// pulling says how a pull on many nodes goes.
type pulling struct {
	out   io.Writer
	total int

	mu sync.Mutex
	// under are the nodes that pull.
	under        map[string]bool
	ended, there int
	quiet        bool
}

func (p *pulling) begins(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under[node] = true
}

func (p *pulling) ends(r prepull.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.under, r.Node)
	p.ended++
	p.quiet = false
	if r.Err == nil {
		p.there++
	}
	fmt.Fprintf(p.out, "%s: %s (%d of %d)\n", r.Node, outcome(r), p.ended, p.total)
}

// outcome is what became of a node, in words.
func outcome(r prepull.Result) string {
	switch {
	case r.Err != nil:
		return "failed: " + plaintext.Line(r.Err.Error())
	case r.State == imagepull.Present:
		return "is there"
	default:
		size := resource.NewQuantity(int64(r.Bytes>>20)<<20, resource.BinarySI) //nolint:gosec // no image is that large
		return fmt.Sprintf("pulled in %s, %s", r.Took.Round(100*time.Millisecond), size)
	}
}

// waiting says who still pulls, unless somebody ended since it was said last.
func (p *pulling) waiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet && len(p.under) > 0 {
		names := slices.Sorted(maps.Keys(p.under))
		more := ""
		if len(names) > maxNamed {
			names, more = names[:maxNamed], fmt.Sprintf(" and %d others", len(names)-maxNamed)
		}
		fmt.Fprintf(p.out, "still pulling: %s%s\n", strings.Join(names, ", "), more)
	}
	p.quiet = true
}

// watch waits until all have ended, and sums up.
func (p *pulling) watch(ctx context.Context, done <-chan struct{}) error {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.waiting()
			continue
		case <-done:
		}
		break
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.there < p.total {
		return fmt.Errorf("%d of %d nodes have the image", p.there, p.total)
	}
	fmt.Fprintf(p.out, "All %d nodes have the image.\n", p.total)
	return ctx.Err()
}
