package agent

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/status"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// fakeVolumes are volumes that need no work; missing, if set, is what every set-up fails with.
type fakeVolumes struct {
	mu      sync.Mutex
	missing error
	down    []types.UID
	changed []*corev1.Pod
	mounts  []volumes.Mount
}

func (v *fakeVolumes) SetUp(context.Context, *corev1.Pod) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.missing
}

func (v *fakeVolumes) PodChanged(pod *corev1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changed = append(v.changed, pod)
}

func (v *fakeVolumes) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.missing = err
}

func (v *fakeVolumes) Mounts(*corev1.Pod, *corev1.Container) ([]volumes.Mount, error) {
	return v.mounts, nil
}

func (v *fakeVolumes) TearDown(_ context.Context, uid types.UID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.down = append(v.down, uid)
	return nil
}

// fakeProber says what the test wants of every container that has a probe.
type fakeProber struct {
	mu     sync.Mutex
	probes map[types.UID][]podworker.Probe
	// kept are the pods of which only readiness is probed.
	kept map[types.UID]bool
}

func (p *fakeProber) Start(*corev1.Pod, string, string, string, time.Time) {}

func (p *fakeProber) KeepReadiness(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[uid] = true
}

func (p *fakeProber) Stop(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.probes, uid)
}

func (p *fakeProber) keeps(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept[uid] && p.probes[uid] != nil
}

func (p *fakeProber) set(uid types.UID, probes ...podworker.Probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes[uid] = probes
}

func (p *fakeProber) Results(uid types.UID) []podworker.Probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes[uid]
}

// testNode is the pod loop of an agent on a machine, with an API of the test's.
type testNode struct {
	api     *api
	volumes *fakeVolumes
	prober  *fakeProber
	pods    *pods
	stop    func()
}

// startNode starts the pod loop. It may be stopped and started again on one machine.
func startNode(t *testing.T, m *machine, a *api) *testNode {
	t.Helper()
	logger, ctx := ktesting.NewTestContext(t)
	ctx = klog.NewContext(ctx, logger)
	ctx, cancel := context.WithCancel(ctx)
	n := &testNode{api: a, volumes: &fakeVolumes{}, prober: &fakeProber{probes: map[types.UID][]podworker.Probe{}, kept: map[types.UID]bool{}}}
	groups, err := cgroups.New(cgroups.Config{Root: m.cgroupRoot})
	must(t, err)
	rt := cri.New(cri.Config{
		Service: m.services.Runtime, LogRoot: filepath.Join(m.dir, "log/pods"), LinkRoot: filepath.Join(m.dir, "log/containers"),
		PodsRoot: filepath.Join(m.dir, "pods"), Cgroups: groups, MemoryCapacity: 1 << 30,
	})
	statuses := status.New(a)
	ev := events{recorder: a}
	n.pods = newPods(ctx, parts{
		runtime: rt, devices: devices.New(devices.Config{Dir: m.dir + "/devices", Clock: clock.RealClock{}}), claims: noClaims{},
		images: images.New(images.Config{Service: m.services.Images, Record: ev.container, Clock: clock.RealClock{},
			Secrets: func(context.Context, string, string) (*corev1.Secret, error) { panic("no pod has pull secrets") }}),
		volumes: n.volumes, prober: n.prober, statuses: statuses, events: ev, clock: clock.RealClock{},
		hostIPs: func() []string { return []string{"192.0.2.1"} },
		node:    func() *corev1.Node { return nil },
		env: func(_ context.Context, _ *corev1.Pod, c *corev1.Container, _ []string) ([]env.Var, error) {
			var vars []env.Var
			for _, v := range c.Env {
				vars = append(vars, env.Var{Name: v.Name, Value: v.Value})
			}
			return vars, nil
		},
	})
	var wg sync.WaitGroup
	wg.Go(func() { statuses.Run(ctx) })
	wg.Go(func() { rt.Watch(ctx, n.pods) })
	wg.Go(func() { n.pods.wait(ctx) })
	a.watch(n.pods)
	n.stop = sync.OnceFunc(func() {
		a.watch(nil)
		cancel()
		wg.Wait()
	})
	t.Cleanup(n.stop)
	return n
}

func hasPhase(phase corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == phase }
}

func isGone(pod *corev1.Pod) bool { return pod == nil }

func isReady(pod *corev1.Pod) bool {
	if pod == nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// patience is how long a test waits for what must happen. Only a failure takes that long.
const patience = 3 * time.Minute

// eventually looks until ok. It is for what nobody tells of, such as files.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
