// Package podstest runs the pods of a node in memory: an API with pods only, a container runtime, volumes and probes.
package podstest

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/hollow"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/status"
)

// Machine is a container runtime and its images; Runtime is one.
type Machine interface {
	pods.Runtime
	pods.Images
}

// Start runs the pods of a node on such a machine until the test ends. The test tells it what the API and the runtime
// have. Options change the configuration before.
func Start(t *testing.T, r Machine, a *API, options ...func(*pods.Config)) *pods.Manager {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	statuses := status.New(a)
	cfg := pods.Config{
		Runtime: r, Devices: devices.New(devices.Config{Dir: t.TempDir(),
			Clock: clock.RealClock{}}), Claims: hollow.NoClaims{},
		Images: r, Volumes: &Volumes{}, Prober: NewProber(), Statuses: statuses, Events: events.Recorder{EventRecorder: a},
		Clock: clock.RealClock{}, HostIPs: func() []string { return []string{"192.0.2.1"} },
		Node: func() *corev1.Node { return nil },
		Env:  func(context.Context, *corev1.Pod, *corev1.Container, []string) ([]env.Var, error) { return nil, nil },
	}
	for _, option := range options {
		option(&cfg)
	}
	p := pods.New(ctx, cfg)
	var wg sync.WaitGroup
	wg.Go(func() { statuses.Run(ctx) })
	wg.Go(func() { p.Wait(ctx) })
	t.Cleanup(func() {
		a.Watch(nil)
		cancel()
		wg.Wait()
	})
	return p
}

// WithStaticPods has nothing start before SetStatics was called.
func WithStaticPods(cfg *pods.Config) { cfg.StaticPods = true }
