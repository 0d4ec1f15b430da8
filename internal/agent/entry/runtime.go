package entry

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
)

// connectPatience is how long the agent waits for a runtime that does not answer, connectRetry after how long it tries
// again.
const (
	connectPatience = 10 * time.Second
	connectRetry    = time.Second
)

// Connect waits a while for the runtime, which may start at the same time.
func Connect(ctx context.Context, endpoint string, clk clock.WithTicker) (cri.Services, error) {
	for deadline := clk.Now().Add(connectPatience); ; {
		services, err := cri.Connect(ctx, endpoint)
		if err == nil {
			return services, nil
		}
		if !clk.Now().Before(deadline) {
			return cri.Services{}, fmt.Errorf("%w; start the container runtime, or name its socket with --runtime-endpoint", err)
		}
		select {
		case <-ctx.Done():
			return cri.Services{}, err
		case <-clk.After(connectRetry):
		}
	}
}
