// Package hollow is a machine that notes down what an agent does to it, and does nothing.
package hollow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/objects"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// Forgetful takes what is told of other nodes and keeps nothing: there are no paths to make.
type Forgetful struct{}

var _ cache.ReflectorStore = Forgetful{}

func (Forgetful) Add(any) error               { return nil }
func (Forgetful) Update(any) error            { return nil }
func (Forgetful) Delete(any) error            { return nil }
func (Forgetful) Replace([]any, string) error { return nil }
func (Forgetful) Resync() error               { return nil }

// NoDevices has none.
type NoDevices struct{}

var _ pods.Devices = NoDevices{}

func (NoDevices) Provides(corev1.ResourceName) bool        { return false }
func (NoDevices) Admit(context.Context, *corev1.Pod) error { return nil }
func (NoDevices) Free(types.UID)                           {}
func (NoDevices) Container(context.Context, *corev1.Pod, *corev1.Container) (devices.Options, error) {
	return devices.Options{}, nil
}

// NoClaims are prepared.
type NoClaims struct{}

var _ pods.Claims = NoClaims{}

func (NoClaims) Prepare(context.Context, *corev1.Pod) error { return nil }
func (NoClaims) Container(context.Context, *corev1.Pod, *corev1.Container) ([]string, error) {
	return nil, nil
}
func (NoClaims) Release(context.Context, types.UID) error { return nil }

// AllImages are there.
type AllImages struct{}

var _ pods.Images = AllImages{}

func (AllImages) Ensure(_ context.Context, _ *corev1.Pod, c *corev1.Container) (images.Image, error) {
	return images.Image{Ref: "hollow/" + c.Image}, nil
}

// ReadVolumes reads what volumes show, as that is what the server notices of them, and writes it nowhere.
type ReadVolumes struct{ objects.Reader }

var _ pods.Volumes = ReadVolumes{}

func (v ReadVolumes) SetUp(ctx context.Context, pod *corev1.Pod) error {
	var errs []error
	for i := range pod.Spec.Volumes {
		if err := v.read(ctx, pod, &pod.Spec.Volumes[i]); err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", pod.Spec.Volumes[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

func (ReadVolumes) PodChanged(*corev1.Pod)        {}
func (ReadVolumes) Shows(types.UID) volumes.Shown { return volumes.Shown{} }

func (v ReadVolumes) read(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (err error) {
	switch {
	case volume.ConfigMap != nil:
		_, err = v.ConfigMap(ctx, pod.Namespace, volume.ConfigMap.Name)
	case volume.Secret != nil:
		_, err = v.Secret(ctx, pod.Namespace, volume.Secret.SecretName)
	case volume.Projected != nil:
		for i := range volume.Projected.Sources {
			err = errors.Join(err, v.project(ctx, pod, &volume.Projected.Sources[i]))
		}
	}
	return err
}

func (v ReadVolumes) project(ctx context.Context, pod *corev1.Pod, source *corev1.VolumeProjection) (err error) {
	switch {
	case source.ConfigMap != nil:
		_, err = v.ConfigMap(ctx, pod.Namespace, source.ConfigMap.Name)
	case source.Secret != nil:
		_, err = v.Secret(ctx, pod.Namespace, source.Secret.Name)
	case source.ServiceAccountToken != nil:
		_, err = v.ServiceAccountToken(ctx, pod.Namespace, pod.Spec.ServiceAccountName,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: source.ServiceAccountToken.ExpirationSeconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name,
					UID: pod.UID},
			}})
	}
	return err
}

func (ReadVolumes) Mounts(context.Context, *corev1.Pod, *corev1.Container) ([]volumes.Mount, error) {
	return nil, nil
}
func (ReadVolumes) TearDown(context.Context, types.UID) error { return nil }

// Runtime notes down what a container runtime would run. It is safe for concurrent use.
type Runtime struct {
	clock clock.WithTicker
	// Changed is told of a pod of which something is another way.
	Changed func(types.UID)

	mu   sync.Mutex
	held map[types.UID]*hollowPod
	// made counts sandboxes and containers, and makes their IDs.
	made int
}

// hollowPod is what there is of one pod.
type hollowPod struct {
	ref pleg.PodRef
	podworker.Runtime
}

var _ pods.Runtime = (*Runtime)(nil)

// NewRuntime returns a runtime that holds nothing.
func NewRuntime(clk clock.WithTicker) *Runtime {
	return &Runtime{clock: clk, Changed: func(types.UID) {}, held: map[types.UID]*hollowPod{}}
}

// lookEvery is how often a runtime is looked through.
const lookEvery = time.Second

// Watch tells p what there is, again and again, until ctx ends.
func (r *Runtime) Watch(ctx context.Context, p *pods.Manager) {
	for {
		p.RuntimeListed(r.refs())
		select {
		case <-ctx.Done():
			return
		case <-r.clock.After(lookEvery):
		}
	}
}

func (r *Runtime) refs() (out []pleg.PodRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pod := range maps.Values(r.held) {
		out = append(out, pod.ref)
	}
	return out
}

// Observe implements Runtime.
func (r *Runtime) Observe(_ context.Context, uid types.UID) (*podworker.Runtime, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod := r.held[uid]
	if pod == nil {
		return &podworker.Runtime{}, nil
	}
	return &podworker.Runtime{Sandboxes: slices.Clone(pod.Sandboxes), Containers: slices.Clone(pod.Containers)}, nil
}

// CreateSandbox implements Runtime.
func (r *Runtime) CreateSandbox(_ context.Context, pod *corev1.Pod, attempt uint32) (string, error) {
	defer r.Changed(pod.UID)
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held[pod.UID]
	if held == nil {
		held = &hollowPod{ref: pleg.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}}
		r.held[pod.UID] = held
	}
	r.made++
	sandbox := podworker.Sandbox{ID: fmt.Sprintf("sandbox-%d", r.made), Attempt: attempt, Ready: true,
		HostNetwork: pod.Spec.HostNetwork, CreatedAt: r.clock.Now()}
	if !sandbox.HostNetwork {
		sandbox.IPs = []string{netip.AddrFrom4([4]byte{240, byte(r.made >> 16), byte(r.made >> 8), byte(r.made)}).String()}
	}
	held.Sandboxes = append(held.Sandboxes, sandbox)
	return sandbox.ID, nil
}

// StopSandbox implements Runtime.
func (r *Runtime) StopSandbox(_ context.Context, id string) error {
	return r.change(func(pod *hollowPod) bool {
		i := slices.IndexFunc(pod.Sandboxes, func(s podworker.Sandbox) bool { return s.ID == id })
		if i >= 0 {
			pod.Sandboxes[i].Ready = false
		}
		return i >= 0
	})
}

// RemoveSandbox implements Runtime.
func (r *Runtime) RemoveSandbox(_ context.Context, id string) error {
	return r.change(func(pod *hollowPod) bool {
		n := len(pod.Sandboxes)
		pod.Sandboxes = slices.DeleteFunc(pod.Sandboxes, func(s podworker.Sandbox) bool { return s.ID == id })
		return len(pod.Sandboxes) < n
	})
}

// CreateContainer implements Runtime.
func (r *Runtime) CreateContainer(_ context.Context, spec cri.ContainerSpec) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod := r.held[spec.Pod.UID]
	if pod == nil {
		return "", fmt.Errorf("pod %s has no sandbox", spec.Pod.Name)
	}
	r.made++
	c := podworker.Container{
		ID: fmt.Sprintf("container-%d", r.made), Name: spec.Container.Name, SandboxID: spec.SandboxID, Attempt: spec.Attempt,
		State:    podworker.Created,
		SpecHash: podworker.ContainerHash(spec.Container), Image: spec.Container.Image, ImageID: spec.Image.Ref,
		VolumeImages: spec.VolumeImages, CreatedAt: r.clock.Now(),
	}
	pod.Containers = append(pod.Containers, c)
	return c.ID, nil
}

// StartContainer implements Runtime. An init container that is no sidecar has done its work at once.
func (r *Runtime) StartContainer(_ context.Context, pod *corev1.Pod, name, id string, _ uint32) error {
	once := slices.ContainsFunc(pod.Spec.InitContainers,
		func(c corev1.Container) bool { return c.Name == name && c.RestartPolicy == nil })
	return r.container(id, func(c *podworker.Container) {
		c.State, c.StartedAt = podworker.Running, r.clock.Now()
		if once {
			c.State, c.FinishedAt = podworker.Exited, c.StartedAt
		}
	})
}

// StopContainer implements Runtime.
func (r *Runtime) StopContainer(_ context.Context, id string, _ time.Duration) error {
	return r.container(id, func(c *podworker.Container) {
		if c.State != podworker.Exited {
			c.State, c.FinishedAt = podworker.Exited, r.clock.Now()
		}
	})
}

// RemoveContainer implements Runtime.
func (r *Runtime) RemoveContainer(_ context.Context, id string) error {
	return r.change(func(pod *hollowPod) bool {
		n := len(pod.Containers)
		pod.Containers = slices.DeleteFunc(pod.Containers, func(c podworker.Container) bool { return c.ID == id })
		return len(pod.Containers) < n
	})
}

// Clean implements Runtime.
func (r *Runtime) Clean(_ context.Context, uid types.UID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, uid)
	return nil
}

// ExecSync implements Runtime.
func (*Runtime) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, exitCode int32,
	err error) {
	return nil, nil, -1, errors.New("nothing runs in a hollow node's containers, so no command can be run there")
}

// WidenPod implements Runtime.
func (*Runtime) WidenPod(*corev1.Pod) error { return nil }

// ResizeContainer implements Runtime.
func (*Runtime) ResizeContainer(context.Context, *corev1.Pod, *corev1.Container, string) error {
	return nil
}

// NarrowPod implements Runtime.
func (*Runtime) NarrowPod(*corev1.Pod) error { return nil }

// container changes one container. One that is not there any more has stopped, as with a runtime.
func (r *Runtime) container(id string, do func(*podworker.Container)) error {
	return r.change(func(pod *hollowPod) bool {
		i := slices.IndexFunc(pod.Containers, func(c podworker.Container) bool { return c.ID == id })
		if i >= 0 {
			do(&pod.Containers[i])
		}
		return i >= 0
	})
}

// change finds the pod that do changes, which says so, and tells who watches.
func (r *Runtime) change(do func(*hollowPod) bool) error {
	r.mu.Lock()
	for uid, pod := range r.held {
		if do(pod) {
			defer r.Changed(uid)
			break
		}
	}
	r.mu.Unlock()
	return nil
}
