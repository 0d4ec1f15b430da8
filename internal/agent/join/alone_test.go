package join

import (
	"context"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// TestTenDaysAlone leaves a node alone until long after the end of its certificate. It goes on, and joins again by
// itself when the server is back and its token counts; else it says what to do.
func TestTenDaysAlone(t *testing.T) {
	c := newCluster(t)
	cfg := c.config(t)
	clock := testingclock.NewFakeClock(time.Now())
	cfg.Clock = clock
	id, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	first := id.client.Load()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- id.Run(ctx) }()
	eventually(t, func() bool { return id.serving.Load() != nil })

	c.away.Store(true)
	for range 10 * 24 {
		eventually(t, clock.HasWaiters)
		clock.Step(time.Hour)
	}
	select {
	case err := <-ended:
		t.Fatalf("the node gave up: %v", err)
	default:
	}
	if id.client.Load() != first || valid(first.Leaf, clock.Now()) {
		t.Fatal("the certificate is not what the test wants")
	}
	tokenless := &Identity{cfg: cfg}
	tokenless.cfg.Token = ""
	tokenless.client.Store(first)
	err = tokenless.refreshClient(ctx)
	if err == nil || !strings.Contains(err.Error(), "everynode token create") {
		t.Errorf("without a token it says %v, want what to do", err)
	}

	c.mu.Lock()
	c.life = 20 * 24 * time.Hour // still good by the clock of the node
	c.mu.Unlock()
	c.away.Store(false)
	eventually(t, func() bool {
		clock.Step(firstRetry)
		return valid(id.client.Load().Leaf, clock.Now()) && valid(id.serving.Load().Leaf, clock.Now())
	})
	cancel()
	err = <-ended
	if err != nil {
		t.Error(err)
	}
}
