package podworker

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ActionKind says what to do.
type ActionKind uint8

// Kinds of action. KillContainer and Announce may run beside others; the rest are serial.
const (
	// SetUpVolumes makes the pod's volumes ready on the node.
	SetUpVolumes ActionKind = iota + 1
	// CreateSandbox makes a sandbox with number Attempt.
	CreateSandbox
	// PullImage makes the image of Container present, as its pull policy says.
	PullImage
	// StartContainer creates and starts Container in SandboxID with number Attempt, then runs its postStart hook.
	StartContainer
	// KillContainer runs the preStop hook and stops ContainerID within Grace seconds.
	KillContainer
	// StopSandbox stops SandboxID and gives its network back.
	StopSandbox
	// RemoveContainer removes the dead ContainerID with its logs' link.
	RemoveContainer
	// RemoveSandbox removes SandboxID.
	RemoveSandbox
	// TearDownVolumes undoes SetUpVolumes.
	TearDownVolumes
	// Finish deletes the pod from the API: nothing of it is left on the node.
	Finish
	// Forget clears up the last traces and ends the worker: the pod is neither on the node nor in the API.
	Forget
	// Announce tells the user, by an event, that Container waits for a back-off: Reason and Message are the event's.
	Announce
	// WidenPod gives the pod as a whole room for what its containers have and for what they are to have.
	WidenPod
	// ResizeContainer gives the running ContainerID the CPU and memory of its spec.
	ResizeContainer
	// NarrowPod leaves the pod as a whole what its containers have.
	NarrowPod
)

var kindNames = [...]string{"", "SetUpVolumes", "CreateSandbox", "PullImage", "StartContainer", "KillContainer",
	"StopSandbox", "RemoveContainer", "RemoveSandbox", "TearDownVolumes", "Finish", "Forget", "Announce",
	"WidenPod", "ResizeContainer", "NarrowPod"}

// String names the kind.
func (k ActionKind) String() string { return kindNames[k] }

// serial says that the kind must not overlap another of its sort.
func (k ActionKind) serial() bool { return k != KillContainer && k != Announce }

// Action is one thing to do, and why.
type Action struct {
	Kind ActionKind
	// Container is the container's name in the spec.
	Container string
	// Init says that Container is an init container.
	Init        bool
	ContainerID string
	SandboxID   string
	// Attempt is the number of the new container or sandbox.
	Attempt uint32
	// Grace is how long a kill may take, preStop hook included, in seconds.
	Grace int64
	// Reason is why, in one word; Message says it to the user, and is the event's text where the kind has one.
	Reason, Message string

	// lastExit is when the container that a start replaces exited; zero for a first start.
	lastExit time.Time
	// wanted are the resources that containers are to have, by name; kept those that were given to containers while they
	// ran, by ID.
	wanted, kept map[string]corev1.ResourceRequirements
	// image is the one that is to be made present.
	image string
	// again says that the container's spec changed since the last start: earlier failures do not count.
	again bool
}

// restarts says that the start replaces a container that exited.
func (a *Action) restarts() bool { return !a.lastExit.IsZero() }

// String renders the action on one line.
func (a Action) String() string {
	s := a.Kind.String()
	if a.Container != "" {
		s += " " + a.Container
	}
	switch a.Kind {
	case CreateSandbox, StartContainer:
		s += fmt.Sprintf(" attempt=%d", a.Attempt)
	case KillContainer:
		s += fmt.Sprintf(" id=%s grace=%d", a.ContainerID, a.Grace)
	case RemoveContainer:
		s += " id=" + a.ContainerID
	case StopSandbox, RemoveSandbox:
		s += " id=" + a.SandboxID
	}
	if a.Reason != "" {
		s += " (" + a.Reason + ")"
	}
	return s
}

// Plan is a decision.
type Plan struct {
	// Actions to begin now, in this order.
	Actions []Action
	// Deadline is when to decide again though nothing happened; zero if there is no such time.
	Deadline time.Time
	// Abandon says that a SetUpVolumes, CreateSandbox, PullImage or StartContainer under way has no use any more: its
	// waiting may be cut short. What it already did is found in the runtime.
	Abandon bool
	// Ending says that the containers stop for good, or did: what runs is asked only whether it still serves.
	Ending bool
}

// wake moves the deadline forward to at, if at is sooner.
func (p *Plan) wake(at time.Time) {
	if p.Deadline.IsZero() || at.Before(p.Deadline) {
		p.Deadline = at
	}
}

// Outcome is how an action ended. The zero value is success.
type Outcome struct {
	// Reason is what a container waits for, or the class of another failure; empty means success.
	Reason string
	// Message explains the failure.
	Message string
}

// Failed says that the action did not do what it should.
func (o Outcome) Failed() bool { return o.Reason != "" }

// Reasons for which a container waits, as in its status.
const (
	ReasonContainerCreating    = "ContainerCreating"
	ReasonPodInitializing      = "PodInitializing"
	ReasonCrashLoopBackOff     = "CrashLoopBackOff"
	ReasonImagePullBackOff     = "ImagePullBackOff"
	ReasonErrImagePull         = "ErrImagePull"
	ReasonErrImageNeverPull    = "ErrImageNeverPull"
	ReasonInvalidImageName     = "InvalidImageName"
	ReasonImageInspectError    = "ImageInspectError"
	ReasonCreateConfigError    = "CreateContainerConfigError"
	ReasonCreateContainerError = "CreateContainerError"
	ReasonRunContainerError    = "RunContainerError"
	ReasonPostStartHookError   = "PostStartHookError"
)

// Probe is what the probes say of one container.
type Probe struct {
	Container string
	// ContainerID is the container that was probed; empty if that is not recorded.
	ContainerID string
	// Known says that a probe gave a result for this container since the agent started.
	Known                          bool
	Started, Ready, LivenessFailed bool
	// Message says which probe failed for good, and TerminationGracePeriodSeconds is that probe's own; nil if it has none.
	Message                       string
	TerminationGracePeriodSeconds *int64
}

// Input is everything that a decision is made from. Decide and Status only read it.
type Input struct {
	// Pod is the API object as last seen; nil for a pod that was only ever found in the runtime.
	Pod *corev1.Pod
	// Gone says that the API no longer has the pod.
	Gone bool
	// Runtime is what the runtime holds; nil means that it was not read yet.
	Runtime *Runtime
	Probes  []Probe
	Memory  *Memory
	Now     time.Time
	// Pending is why the pod was not given the CPU and memory that the API asks for: its spec has those that it was given.
	Pending Pending
	// Content is what came of pointing the pod's volumes at other copies than its spec names.
	Content Content
	// Fetched is what came of fetching images for the pod's successor; nil for nothing yet.
	Fetched *corev1.PodCondition
	// Held says for whom the pod waits before anything of it starts, in words for people; "" if nothing holds it.
	Held string
}

// Content is what a pod's volumes were pointed at, "" for nothing, and why they do not show it.
type Content struct {
	Key string
	Err error
}

func (in *Input) terminating() bool {
	return in.Gone || in.Pod == nil || in.Pod.DeletionTimestamp != nil
}

func (in *Input) probe(name, containerID string) *Probe {
	for i := range in.Probes {
		p := &in.Probes[i]
		if p.Container == name && (p.ContainerID == "" || p.ContainerID == containerID) {
			return p
		}
	}
	return nil
}
