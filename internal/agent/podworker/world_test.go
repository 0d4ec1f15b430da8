package podworker

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a node with one pod: a runtime in which containers run at once, an API with the one object, and a worker.
type world struct {
	now     time.Time
	pod     *corev1.Pod
	gone    bool
	runtime Runtime
	memory  Memory
	probes  []Probe
	status  corev1.PodStatus
	ids     int
	// failNext makes the next action of a kind fail.
	failNext map[ActionKind]Outcome
	// started lists what was ever started, for the invariants.
	started map[string][]uint32
	pending Pending
	// killsLost lets kills end, and sandboxes stop, without that anybody sees an effect.
	killsLost bool
	// away says that nobody reaches the API: it does not hear of statuses.
	away bool
	// claimed says that drivers prepared what the pod claims.
	claimed bool
}

func newWorld(pod *corev1.Pod) *world {
	return &world{now: epoch, pod: pod, failNext: map[ActionKind]Outcome{}, started: map[string][]uint32{}}
}

func (w *world) input() Input {
	return Input{Pod: w.pod, Gone: w.gone, Runtime: &w.runtime, Probes: w.probes, Memory: &w.memory, Now: w.now, Pending: w.pending}
}

func (w *world) decide() Plan { return Decide(w.input()) }

// perform does the action in the runtime and returns how it ended.
func (w *world) perform(a Action) Outcome {
	if o, ok := w.failNext[a.Kind]; ok {
		delete(w.failNext, a.Kind)
		if a.Kind == StartContainer && o.Reason == ReasonRunContainerError {
			w.create(a, Exited)
		}
		return o
	}
	switch a.Kind {
	case TearDownVolumes:
		w.claimed = false
	case CreateSandbox:
		w.ids++
		w.claimed = true
		w.runtime.Sandboxes = append(w.runtime.Sandboxes, Sandbox{ID: fmt.Sprintf("s%d", w.ids), Attempt: a.Attempt, Ready: true,
			IPs: []string{"10.0.0.9"}, HostNetwork: w.pod.Spec.HostNetwork, CreatedAt: w.now})
	case StartContainer:
		w.create(a, Running)
	case KillContainer:
		if !w.killsLost {
			w.exit(a.ContainerID, 0)
		}
	case StopSandbox:
		for i := range w.runtime.Sandboxes {
			if w.runtime.Sandboxes[i].ID == a.SandboxID && !w.killsLost {
				w.runtime.Sandboxes[i].Ready = false
			}
		}
		for _, c := range w.runtime.Containers {
			if c.SandboxID == a.SandboxID {
				w.exit(c.ID, 137)
			}
		}
	case RemoveContainer:
		w.runtime.Containers = slices.DeleteFunc(w.runtime.Containers, func(c Container) bool {
			return c.ID == a.ContainerID
		})
	case RemoveSandbox:
		w.runtime.Sandboxes = slices.DeleteFunc(w.runtime.Sandboxes, func(s Sandbox) bool { return s.ID == a.SandboxID })
	case Finish:
		w.gone = true
	}
	return Outcome{}
}

func (w *world) create(a Action, state ContainerState) { w.createOf(w.pod, a, state) }

// createOf makes a container of the pod as it was when that began.
func (w *world) createOf(pod *corev1.Pod, a Action, state ContainerState) {
	w.ids++
	spec := podfacts.Container(pod, a.Container)
	w.started[a.Container] = append(w.started[a.Container], a.Attempt)
	c := Container{ID: fmt.Sprintf("%s-%d", a.Container, a.Attempt), Name: a.Container, SandboxID: a.SandboxID, Attempt: a.Attempt,
		State: state, SpecHash: ContainerHash(spec), Resources: spec.Resources.DeepCopy(), CreatedAt: w.now, Image: spec.Image, ImageID: "sha256:1"}
	switch state {
	case Running:
		c.StartedAt = w.now
	case Created:
	default:
		c.FinishedAt, c.ExitCode, c.Reason = w.now, 128, "StartError"
	}
	w.runtime.Containers = append(w.runtime.Containers, c)
}

func (w *world) exit(id string, code int32) {
	for i := range w.runtime.Containers {
		if c := &w.runtime.Containers[i]; c.ID == id && c.State != Exited {
			c.State, c.ExitCode, c.FinishedAt = Exited, code, w.now
		}
	}
}

// step decides once and does what was decided.
func (w *world) step() Plan {
	plan := w.decide()
	for _, a := range plan.Actions {
		w.memory.Begin(a, w.now)
	}
	for _, a := range plan.Actions {
		w.memory.Done(a, w.perform(a), w.now)
	}
	w.report()
	return plan
}

// report writes the status to the API, as the agent does.
func (w *world) report() {
	if w.pod == nil || w.gone || w.memory.Finished() {
		return
	}
	prev := &w.status
	if prev.Phase == "" {
		prev = &w.pod.Status
	}
	w.status = Status(w.input(), prev, []string{"192.0.2.1"})
	w.memory.Recall(&w.status)
	if w.away {
		return
	}
	w.pod = w.pod.DeepCopy()
	w.pod.Status = w.status
}

// running names the containers that run, in the order of their making.
func (w *world) running() []string {
	var out []string
	for _, c := range w.runtime.Containers {
		if c.State == Running {
			out = append(out, c.Name)
		}
	}
	return out
}

func (w *world) setProbe(name string, change func(*Probe)) {
	id := ""
	if c := w.runtime.newest(name); c != nil {
		id = c.ID
	}
	for i := range w.probes {
		if w.probes[i].Container == name {
			if w.probes[i].ContainerID != id {
				w.probes[i] = Probe{Container: name, ContainerID: id}
			}
			change(&w.probes[i])
			return
		}
	}
	p := Probe{Container: name, ContainerID: id}
	change(&p)
	w.probes = append(w.probes, p)
}

func (w *world) delete(grace int64) {
	w.pod = w.pod.DeepCopy()
	at := metav1.NewTime(w.now.Add(time.Duration(grace) * time.Second))
	w.pod.DeletionTimestamp, w.pod.DeletionGracePeriodSeconds = &at, &grace
}

// restart is an agent that was killed and started again.
func (w *world) restart() {
	w.memory, w.probes, w.status = Memory{}, nil, corev1.PodStatus{}
	w.memory.RecallSizes(w.pod, &w.runtime)
}

// podSpec builds the pods of the tests.
type podSpec struct {
	restart           corev1.RestartPolicy
	init, sidecar     []string
	containers        []string
	startup           []string
	grace             int64
	hostNetwork       bool
	readiness         []string
	activeDeadlineSec int64
}

func (s podSpec) pod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: types.UID("u1"), Generation: 1,
		CreationTimestamp: metav1.NewTime(epoch)}}
	pod.Spec = corev1.PodSpec{NodeName: "n1", RestartPolicy: s.restart, HostNetwork: s.hostNetwork}
	if s.restart == "" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	if s.grace > 0 {
		pod.Spec.TerminationGracePeriodSeconds = &s.grace
	}
	if s.activeDeadlineSec > 0 {
		pod.Spec.ActiveDeadlineSeconds = &s.activeDeadlineSec
	}
	container := func(name string) corev1.Container {
		c := corev1.Container{Name: name, Image: "img"}
		if slices.Contains(s.startup, name) {
			c.StartupProbe = &corev1.Probe{}
		}
		if slices.Contains(s.readiness, name) {
			c.ReadinessProbe = &corev1.Probe{}
		}
		return c
	}
	always := corev1.ContainerRestartPolicyAlways
	for _, name := range s.init {
		c := container(name)
		if slices.Contains(s.sidecar, name) {
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for _, name := range s.containers {
		pod.Spec.Containers = append(pod.Spec.Containers, container(name))
	}
	pod.Status.Phase = corev1.PodPending
	return pod
}
