package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// Environment computes the variables of a container.
type Environment func(ctx context.Context, pod *corev1.Pod, container *corev1.Container,
	podIPs []string) ([]env.Var, error)

// Config is everything that workers act through.
type Config struct {
	Runtime  Runtime
	Devices  Devices
	Claims   Claims
	Images   Images
	Volumes  Volumes
	Prober   Prober
	Statuses Statuses
	Events   events.Recorder
	Env      Environment
	// References keeps what pods refer to at hand; nil for nobody.
	References References
	// Fetcher fetches images that pods are asked for before their turn; nil for nobody.
	Fetcher Fetcher
	// Book is what is remembered of pods; nil for one that nobody reads.
	Book  *Book
	Clock clock.WithTicker
	// HostIPs returns the node's addresses as they are now.
	HostIPs func() []string
	// AppArmor reports whether the kernel enforces AppArmor.
	AppArmor bool
	// Sysctls are the unsafe kernel parameters that pods may set.
	Sysctls []string
	// Pressures are those that the node is under; nil for none.
	Pressures func() []corev1.NodeConditionType
	// Node returns the node's object, nil before it is known.
	Node func() *corev1.Node
	// StaticPods reports whether SetStatics will be called: until then nobody knows which static pods are wanted, and
	// nothing starts.
	StaticPods bool
	// Rebooted reports whether the machine has started again since the agent ran last: the pods that are bound to it then
	// start in the order of their groups.
	Rebooted bool
	// StaticsChanged is told that a static pod came or went, MirrorSeen of mirrors in the API. They must not block; nil
	// for nobody.
	StaticsChanged func()
	MirrorSeen     func(mirror *corev1.Pod, gone bool)
}

// Runtime is the container runtime as workers use it; cri.Runtime is one.
type Runtime interface {
	Observe(ctx context.Context, uid types.UID) (*podworker.Runtime, error)
	CreateSandbox(ctx context.Context, pod *corev1.Pod, attempt uint32) (string, error)
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
	CreateContainer(ctx context.Context, spec cri.ContainerSpec) (string, error)
	StartContainer(ctx context.Context, pod *corev1.Pod, name, id string, attempt uint32) error
	// WidenPod, ResizeContainer and NarrowPod change the CPU and memory of a pod that runs, in this order.
	WidenPod(pod *corev1.Pod) error
	ResizeContainer(ctx context.Context, pod *corev1.Pod, container *corev1.Container, id string) error
	NarrowPod(pod *corev1.Pod) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte,
		exitCode int32, err error)
	Clean(ctx context.Context, uid types.UID) error
}

// Images makes images present; images.Manager is one.
type Images interface {
	Ensure(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (images.Image, error)
}

// Devices gives pods what device plugins offer; devices.Manager is one.
type Devices interface {
	Provides(resource corev1.ResourceName) bool
	Admit(ctx context.Context, pod *corev1.Pod) error
	Container(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (devices.Options, error)
	Free(podUID types.UID)
}

// Claims has the devices of pods' ResourceClaims prepared; claims.Manager is one.
type Claims interface {
	Prepare(ctx context.Context, pod *corev1.Pod) error
	// Container returns the names of a container's devices in the Container Device Interface.
	Container(ctx context.Context, pod *corev1.Pod, container *corev1.Container) ([]string, error)
	Release(ctx context.Context, podUID types.UID) error
}

// Volumes makes volumes ready; volumes.Manager is one.
type Volumes interface {
	SetUp(ctx context.Context, pod *corev1.Pod) error
	// PodChanged brings what shows the pod's labels and annotations up to date; it waits for nothing.
	PodChanged(pod *corev1.Pod)
	// Shows returns what came of pointing the pod's volumes at other copies than its spec names.
	Shows(podUID types.UID) volumes.Shown
	Mounts(ctx context.Context, pod *corev1.Pod, container *corev1.Container) ([]volumes.Mount, error)
	TearDown(ctx context.Context, podUID types.UID) error
}

// Prober probes containers. Start is told of every running container, again and again; an ID that it did not know
// begins from the start.
type Prober interface {
	Start(pod *corev1.Pod, podIP, container, containerID string, startedAt time.Time)
	// KeepReadiness ends all but the readiness probes.
	KeepReadiness(podUID types.UID)
	Stop(podUID types.UID)
	Results(podUID types.UID) []podworker.Probe
}

// References keeps the objects at hand that pods refer to; referred.Cache does.
type References interface {
	Follow(pod *corev1.Pod)
	Forget(podUID types.UID)
}

// Fetcher fetches images for the pods that come after those that are there; fetcher.Fetcher does.
type Fetcher interface {
	PodChanged(pod *corev1.Pod)
	PodGone(podUID types.UID)
	// Answer is the condition that tells what came of it; nil for none.
	Answer(podUID types.UID) *corev1.PodCondition
}

// Statuses takes pod statuses to the API; status.Manager is one.
type Statuses interface {
	Set(pod *corev1.Pod, status corev1.PodStatus)
	Delete(pod *corev1.Pod, done func())
	Forget(uid types.UID)
}
