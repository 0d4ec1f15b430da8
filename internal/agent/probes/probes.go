package probes

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Exec runs a command in a container and waits for it. A command that takes longer than timeout is an error for which
// errors.Is(err, context.DeadlineExceeded) or the gRPC code DeadlineExceeded holds.
type Exec func(ctx context.Context, containerID string, cmd []string,
	timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)

// Config says how to probe and whom to tell.
type Config struct {
	// Exec runs the commands of exec probes.
	Exec Exec
	// OnChange is told when State of a pod has changed. It is called without locks held and must not block for long.
	OnChange func(podUID types.UID)
	// OnEvent is told what to make an event of: eventType Warning, reason Unhealthy or ProbeWarning. May be nil.
	OnEvent func(pod *corev1.Pod, containerName, eventType, reason, message string)
	// OnProbe is told how each probe ended: kind is Startup, Liveness or Readiness, result successful, failed or unknown.
	// May be nil.
	OnProbe func(pod *corev1.Pod, containerName, kind, result string, took time.Duration)
	// Version is shown to probed servers: v1.37.2 as kube-probe/1.37. The default is empty.
	Version string
	// Spread bounds the random delay of each first probe; the default is a second. It is never more than the period.
	Spread time.Duration
	// Clock tells the time; the default is the real one.
	Clock clock.WithTicker
}

// State is what the probes say about one container.
type State struct {
	// ContainerID is the life of the container that this is about.
	ContainerID string
	// Started is true when the startup probe has succeeded or there is none; Ready when it also passes its readiness probe
	// or has none.
	Started, Ready bool
	// LivenessFailed is true when the container must be killed: its liveness probe, or its startup probe, has failed for
	// good.
	LivenessFailed bool
	// Message says in that case which probe it was.
	Message string
	// TerminationGracePeriodSeconds is the failed probe's own, nil when it has none.
	TerminationGracePeriodSeconds *int64
}

// Manager probes the containers of a node.
type Manager struct {
	cfg   Config
	check checker

	mu   sync.Mutex
	pods map[types.UID]map[string]*target
}

// target is one life of one container.
type target struct {
	manager     *Manager
	pod         *corev1.Pod
	podIP       string
	container   *corev1.Container
	containerID string
	startedAt   time.Time
	cancel      context.CancelFunc
	// keep ends all but the readiness probe.
	keep    context.CancelFunc
	started chan struct{} // closed when the startup probe has succeeded

	mu    sync.Mutex
	state State
}

// New returns a Manager without pods.
func New(cfg Config) *Manager {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Spread == 0 {
		cfg.Spread = time.Second
	}
	return &Manager{cfg: cfg, check: newChecker(cfg), pods: map[types.UID]map[string]*target{}}
}

// Add begins to probe a running container. For the same containerID it does nothing; another one replaces the
// container's former life. What pod's status says of this containerID is where the probes begin, so that an agent's
// restart makes no pod unready.
func (m *Manager) Add(pod *corev1.Pod, podIP, containerName, containerID string, startedAt time.Time) {
	container := findContainer(pod, containerName)
	if container == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	containers := m.pods[pod.UID]
	if old := containers[containerName]; old != nil {
		if old.containerID == containerID && old.podIP == podIP {
			return
		}
		old.cancel()
	}
	if containers == nil {
		containers = map[string]*target{}
		m.pods[pod.UID] = containers
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &target{
		manager: m, pod: pod, podIP: podIP, container: container, containerID: containerID, startedAt: startedAt,
		cancel: cancel, started: make(chan struct{}), state: firstState(pod, container, containerID),
	}
	containers[containerName] = t
	t.start(ctx)
}

// Remove ends the probing of a pod.
func (m *Manager) Remove(podUID types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.pods[podUID] {
		t.cancel()
	}
	delete(m.pods, podUID)
}

// KeepReadiness ends all but the readiness probes of a pod. They go on while its containers stop, so that whoever sends
// traffic learns when one of them cannot serve any more.
func (m *Manager) KeepReadiness(podUID types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.pods[podUID] {
		t.keep()
	}
}

// State is what the probes say now, by container name. Containers that were not added are missing.
func (m *Manager) State(podUID types.UID) map[string]State {
	m.mu.Lock()
	defer m.mu.Unlock()
	states := make(map[string]State, len(m.pods[podUID]))
	for name, t := range m.pods[podUID] {
		t.mu.Lock()
		states[name] = t.state
		t.mu.Unlock()
	}
	return states
}

// firstState is the state before any probe has run.
func firstState(pod *corev1.Pod, container *corev1.Container, containerID string) State {
	s := State{ContainerID: containerID, Started: container.StartupProbe == nil}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			known := &list[i]
			if known.Name != container.Name || containerID == "" || !strings.HasSuffix(known.ContainerID, "://"+containerID) ||
				known.State.Running == nil {
				continue
			}
			s.Started = s.Started || known.Started != nil && *known.Started
			s.Ready = s.Started && known.Ready
		}
	}
	if s.Started && container.ReadinessProbe == nil {
		s.Ready = true
	}
	return s
}

// start runs a worker for each probe that is still of use.
func (t *target) start(ctx context.Context) {
	c := t.container
	var life context.Context
	life, t.keep = context.WithCancel(ctx)
	if t.state.Started {
		close(t.started)
	} else {
		go t.run(life, startup, c.StartupProbe)
	}
	if c.LivenessProbe != nil {
		go t.run(life, liveness, c.LivenessProbe)
	}
	if c.ReadinessProbe != nil {
		go t.run(ctx, readiness, c.ReadinessProbe)
	}
}

// spread is a random part of the bound for first probes.
func (m *Manager) spread(period time.Duration) time.Duration {
	return time.Duration(rand.Float64() * float64(min(period, m.cfg.Spread)))
}

func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}
