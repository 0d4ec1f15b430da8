package agent

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/hollow"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/status"
)

// testNode is the pod loop of an agent on a machine, with an API of the test's.
type testNode struct {
	api     *podstest.API
	volumes *podstest.Volumes
	prober  *podstest.Prober
	pods    *pods.Manager
	runtime *cri.Runtime
	stop    func()
}

// startNode starts the pod loop. It may be stopped and started again on one machine.
func startNode(t *testing.T, m *machine, a *podstest.API, options ...func(*cri.Config)) *testNode {
	t.Helper()
	logger, ctx := ktesting.NewTestContext(t)
	ctx = klog.NewContext(ctx, logger)
	ctx, cancel := context.WithCancel(ctx)
	n := &testNode{api: a, volumes: &podstest.Volumes{}, prober: podstest.NewProber()}
	groups, err := cgroups.New(cgroups.Config{Root: m.cgroupRoot})
	podstest.Must(t, err)
	config := cri.Config{
		Service: m.services.Runtime, LogRoot: filepath.Join(m.dir, "log/pods"), LinkRoot: filepath.Join(m.dir,
			"log/containers"),
		PodsRoot: filepath.Join(m.dir, "pods"), Cgroups: groups, MemoryCapacity: 1 << 30,
	}
	for _, option := range options {
		option(&config)
	}
	n.runtime = cri.New(config)
	statuses := status.New(a)
	ev := events.Recorder{EventRecorder: a}
	n.pods = pods.New(ctx, pods.Config{
		Runtime: n.runtime, Devices: devices.New(devices.Config{Dir: m.dir + "/devices",
			Clock: clock.RealClock{}}), Claims: hollow.NoClaims{},
		Images: images.New(images.Config{Service: m.services.Images, Record: ev.Container, Clock: clock.RealClock{},
			Secrets: func(context.Context, string, string) (*corev1.Secret, error) { panic("no pod has pull secrets") }}),
		Volumes: n.volumes, Prober: n.prober, Statuses: statuses, Events: ev, Clock: clock.RealClock{},
		HostIPs: func() []string { return []string{"192.0.2.1"} },
		Node:    func() *corev1.Node { return nil },
		Env: func(_ context.Context, _ *corev1.Pod, c *corev1.Container, _ []string) ([]env.Var, error) {
			var vars []env.Var
			for _, v := range c.Env {
				vars = append(vars, env.Var{Name: v.Name, Value: v.Value})
			}
			return vars, nil
		},
	})
	var wg sync.WaitGroup
	wg.Go(func() { statuses.Run(ctx) })
	wg.Go(func() { n.runtime.Watch(ctx, n.pods) })
	wg.Go(func() { n.pods.Wait(ctx) })
	a.Watch(n.pods)
	n.stop = sync.OnceFunc(func() {
		a.Watch(nil)
		cancel()
		wg.Wait()
	})
	t.Cleanup(n.stop)
	return n
}
