package measure

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
)

// layersFor is how long it counts what containers had on the disk: the runtime's answer is large, and little of it
// changes.
const layersFor = time.Minute

// Layers remember what containers wrote to their own file systems.
type Layers struct {
	Stats func(ctx context.Context, uid types.UID) ([]cri.ContainerStats, error)
	Clock clock.Clock

	mu    sync.Mutex // guards what is below
	at    time.Time
	known map[string]int64
}

// Sizes are in bytes, by the containers' IDs. The map is not changed any more.
func (l *Layers) Sizes(ctx context.Context) (map[string]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known != nil && l.Clock.Since(l.at) < layersFor {
		return l.known, nil
	}
	stats, err := l.Stats(ctx, "")
	if err != nil {
		return nil, err
	}
	l.known, l.at = make(map[string]int64, len(stats)), l.Clock.Now()
	for _, s := range stats {
		l.known[s.ID] = s.Layer
	}
	return l.known, nil
}
