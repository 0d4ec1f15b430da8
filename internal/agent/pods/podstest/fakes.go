package podstest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// BoxImage is the image of the containers of Pod.
const BoxImage = "everynode.test/box:1"

// Volumes are volumes that need no work; missing, if set, is what every set-up fails with.
type Volumes struct {
	// Given are what every container has mounted.
	Given []volumes.Mount

	mu      sync.Mutex
	missing error
	down    []types.UID
	changed []*corev1.Pod
	shown   volumes.Shown
}

// Down are the pods whose volumes were taken down.
func (v *Volumes) Down() []types.UID {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.down)
}

// Changed are the pods of which PodChanged was told, in order.
func (v *Volumes) Changed() []*corev1.Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.changed)
}

func (v *Volumes) SetUp(context.Context, *corev1.Pod) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.missing
}

func (v *Volumes) PodChanged(pod *corev1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changed = append(v.changed, pod)
}

// Shows implements pods.Volumes: nothing is pointed at.
func (v *Volumes) Shows(types.UID) volumes.Shown {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shown
}

// Show has Shows return that.
func (v *Volumes) Show(shown volumes.Shown) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shown = shown
}

// Fail has every set-up fail from now on; nil for none.
func (v *Volumes) Fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.missing = err
}

func (v *Volumes) Mounts(context.Context, *corev1.Pod, *corev1.Container) ([]volumes.Mount, error) {
	return v.Given, nil
}

func (v *Volumes) TearDown(_ context.Context, uid types.UID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.down = append(v.down, uid)
	return nil
}

// Prober says what the test wants of every container that has a probe.
type Prober struct {
	mu     sync.Mutex
	probes map[types.UID][]podworker.Probe
	// kept are the pods of which only readiness is probed.
	kept map[types.UID]bool
}

// NewProber returns a prober of which every container is as its pod says.
func NewProber() *Prober {
	return &Prober{probes: map[types.UID][]podworker.Probe{}, kept: map[types.UID]bool{}}
}

func (p *Prober) Start(*corev1.Pod, string, string, string, time.Time) {}

func (p *Prober) KeepReadiness(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[uid] = true
}

func (p *Prober) Stop(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.probes, uid)
}

// Kept reports whether only the pod's readiness is probed.
func (p *Prober) Kept(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept[uid]
}

// Keeps reports whether the pod has probes, and only its readiness is probed.
func (p *Prober) Keeps(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept[uid] && p.probes[uid] != nil
}

// Set says what the probes of the pod say.
func (p *Prober) Set(uid types.UID, probes ...podworker.Probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes[uid] = probes
}

func (p *Prober) Results(uid types.UID) []podworker.Probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes[uid]
}

// HasPhase reports whether a pod is there and in the phase.
func HasPhase(phase corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == phase }
}

// IsGone reports whether there is no pod.
func IsGone(pod *corev1.Pod) bool { return pod == nil }

// IsReady reports whether the pod is there and ready.
func IsReady(pod *corev1.Pod) bool {
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

// Patience is how long a test waits for what must happen. Only a failure takes that long.
const Patience = 3 * time.Minute

// Eventually looks until ok. It is for what nobody tells of, such as files.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
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

// Must ends the test with an error that is not nil.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Pod is a pod of one container on node n1, whose UID is uid- and its name. It runs BoxImage with the arguments.
func Pod(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			NodeName: "n1", HostNetwork: true, RestartPolicy: corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(5)),
			Containers: []corev1.Container{{
				Name: "main", Image: BoxImage, Args: args, ImagePullPolicy: corev1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}},
		},
	}
}

// StaticPod is a static pod of that name; its UID is made of digit.
func StaticPod(name, digit string) *corev1.Pod {
	pod := Pod(name)
	pod.UID = types.UID(strings.Repeat(digit, 32))
	pod.Annotations = map[string]string{"kubernetes.io/config.hash": string(pod.UID)}
	return pod
}
