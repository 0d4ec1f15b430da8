package podworker

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Runtime is what the container runtime holds for one pod UID. Slices may be in any order.
type Runtime struct {
	Sandboxes  []Sandbox
	Containers []Container
	// GraceSeconds is the termination grace period recorded with the sandbox or the containers, for pods whose API
	// object was never seen. Zero means not recorded.
	GraceSeconds int64
}

// Sandbox is one pod sandbox: the namespaces that a pod's containers share.
type Sandbox struct {
	ID      string
	Attempt uint32
	Ready   bool
	// HostNetwork says that the sandbox has the node's network, and so no addresses of its own.
	HostNetwork bool
	IPs         []string
	CreatedAt   time.Time
}

// ContainerState is the state of a container in the runtime.
type ContainerState uint8

// States of a container.
const (
	// Created containers exist but were never started.
	Created ContainerState = iota
	Running
	Exited
	// Unknown containers may or may not have a process.
	Unknown
)

// String names the state.
func (s ContainerState) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Exited:
		return "exited"
	default:
		return "unknown"
	}
}

// Container is one container, dead or alive.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	// Attempt counts the starts before this one: the restart count of the container.
	Attempt uint32
	State   ContainerState
	// SpecHash is ContainerHash of the spec that it was made from; 0 when not recorded.
	SpecHash uint64
	// Resources are the CPU and memory that it was made with; nil when not recorded.
	Resources *corev1.ResourceRequirements
	// Recorded is what is kept with the container of its spec, for pods whose API object was never seen: its name, ports
	// and preStop hook.
	Recorded *corev1.Container
	// ReadOnlyBelow are the paths of its mounts that are read-only with all that is mounted below them.
	ReadOnlyBelow []string
	// VolumeImages are the digests of the images that it has as volumes, by the volume's name.
	VolumeImages map[string]string
	// User is as whom its first process was started, StopSignal what tells it to stop; nil where the runtime does not say.
	User       *corev1.ContainerUser
	StopSignal *corev1.Signal
	// Image is the image's name, ImageID the runtime's reference to it.
	Image, ImageID                   string
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	// Reason and Message say why it exited, in the runtime's and the container's words.
	Reason, Message string
}

// alive says that the container has, or may have, a process.
func (c *Container) alive() bool { return c.State == Running || c.State == Unknown }

// newest returns the container of that name with the highest attempt (a tie goes to the later one), nil if none.
func (r *Runtime) newest(name string) *Container {
	var found *Container
	for i := range r.Containers {
		c := &r.Containers[i]
		if c.Name == name && (found == nil || newer(c, found)) {
			found = c
		}
	}
	return found
}

// Recorded returns what is kept of the spec of the container with that ID; nil if nothing is.
func (r *Runtime) Recorded(containerID string) *corev1.Container {
	for i := range r.Containers {
		if r.Containers[i].ID == containerID {
			return r.Containers[i].Recorded
		}
	}
	return nil
}

// Running returns the container of that name that runs, nil if none does.
func (r *Runtime) Running(name string) *Container {
	if c := r.newest(name); c != nil && c.State == Running {
		return c
	}
	return nil
}

// lastExited returns the newest exited container of that name other than not, nil if none.
func (r *Runtime) lastExited(name string, not *Container) *Container {
	var found *Container
	for i := range r.Containers {
		c := &r.Containers[i]
		if c.Name == name && c != not && c.State == Exited && (found == nil || newer(c, found)) {
			found = c
		}
	}
	return found
}

func newer(a, b *Container) bool {
	if a.Attempt != b.Attempt {
		return a.Attempt > b.Attempt
	}
	return a.CreatedAt.After(b.CreatedAt)
}

// sandbox returns the newest sandbox, nil if none.
func (r *Runtime) sandbox() *Sandbox {
	var found *Sandbox
	for i := range r.Sandboxes {
		s := &r.Sandboxes[i]
		if found == nil || s.Attempt > found.Attempt || (s.Attempt == found.Attempt && s.CreatedAt.After(found.CreatedAt)) {
			found = s
		}
	}
	return found
}

// anyAlive says whether any container has a process.
func (r *Runtime) anyAlive() bool {
	for i := range r.Containers {
		if r.Containers[i].alive() {
			return true
		}
	}
	return false
}
