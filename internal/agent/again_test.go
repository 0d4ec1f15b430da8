package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/agent/podresources"
)

// A folder of sockets that cannot be used does not end the agent, and is used once it can be.
func TestSocketThatFailsIsMadeLater(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "pod-resources")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	done := make(chan error, 1)
	go func() { done <- again(clk, "sockets", podresources.New(podresources.Config{Dir: dir}).Run)(ctx) }()
	wait := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			select {
			case err := <-done:
				t.Fatalf("it ended: %v", err)
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("it never came to pass that %s", what)
			}
		}
	}
	wait("it waits to try again", clk.HasWaiters)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	clk.Step(againAfter)
	wait("the socket is there", func() bool {
		_, err := os.Stat(filepath.Join(dir, "kubelet.sock"))
		return err == nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestAgainEndsWithItsContext(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	calls := 0
	err := again(clock.RealClock{}, "part", func(context.Context) error {
		calls++
		cancel()
		return errors.New("broken")
	})(ctx)
	if err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
