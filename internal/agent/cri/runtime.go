package cri

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri/labels"
	"github.com/everynode/everynode/internal/agent/cri/logs"
	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/cri/resolvconf"
	"github.com/everynode/everynode/internal/agent/podworker"
)

// callTimeout bounds every call that does not wait for a container.
const callTimeout = 2 * time.Minute

// reasonMayCome is how long after a container's end the runtime may still learn the reason: containerd is told of an
// end and of a want of memory by two events. The second mostly comes within reasonComes, and of a pod that ends with
// the container nobody asks again. A busy machine may look only a while after the end: killedJustNow says how long
// after it the question is put twice.
const (
	reasonMayCome = 10 * time.Second
	reasonComes   = 300 * time.Millisecond
	killedJustNow = 2 * time.Second
)

// Services are the two services that a runtime's socket offers.
type Services struct {
	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
	// Lists lists what the runtime holds.
	Lists *pleg.Lister
}

// Connect opens the runtime's socket, such as unix:///run/containerd/containerd.sock, and checks that it speaks the v1
// API.
func Connect(ctx context.Context, endpoint string) (Services, error) {
	rs, err := criclient.NewRemoteRuntimeServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(callTimeout).
		WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return Services{}, fmt.Errorf("connect to the container runtime at %s: %w", endpoint, err)
	}
	is, err := criclient.NewRemoteImageServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(callTimeout).
		WithTracerProvider(nil).Build(ctx)
	if err != nil {
		_ = rs.Close(ctx)
		return Services{}, fmt.Errorf("connect to the image service at %s: %w", endpoint, err)
	}
	lister, err := pleg.NewLister(endpoint)
	if err != nil {
		_, _ = rs.Close(ctx), is.Close(ctx)
		return Services{}, err
	}
	return Services{Runtime: rs, Images: is, Lists: lister}, nil
}

// Close closes the connections.
func (s Services) Close(ctx context.Context) {
	_ = s.Runtime.Close(ctx)
	_ = s.Images.Close(ctx)
	_ = s.Lists.Close()
}

// Config says how a node lays out its pods. Every field is needed unless it says otherwise.
type Config struct {
	// Service is the runtime.
	Service internalapi.RuntimeService
	// Lister lists what the runtime holds; nil has Service do it, at a higher cost.
	Lister *pleg.Lister
	// LogRoot is the folder of the container logs, such as /var/log/pods; LinkRoot that of the links, such as
	// /var/log/containers.
	LogRoot, LinkRoot string
	// PodsRoot is the folder of the pods' own files.
	PodsRoot string
	// Cgroups are those of the pods.
	Cgroups *cgroups.Cgroups
	// MaxLogSize is the size in bytes at which a container's log is rotated, MaxLogFiles how many files of it there
	// are at most, which are two
	// at least; the defaults are 10 MiB and 5.
	MaxLogSize  int64
	MaxLogFiles int
	// SeccompDefault gives containers the runtime's profile of system calls that ask for none and are not privileged.
	SeccompDefault bool
	// DNS says how pods resolve names.
	DNS resolvconf.DNS
	// Handler finds out how the runtime calls a runtime class.
	Handler func(ctx context.Context, class string) (string, error)
	// Hostname is the node's name, as pods on its network see it.
	Hostname string
	// MemoryCapacity is the node's memory in bytes, against which OOM scores are reckoned.
	MemoryCapacity int64
	// NoteAddresses is told which sandbox has which address, by address, before another one gets one; nil where
	// somebody else gives addresses and knows. What it returns had been forgotten.
	NoteAddresses func(sandboxes map[string]string) (forgotten []string, err error)
	// Strays is told how many processes of a pod were killed that the runtime had forgotten; nil for nobody.
	Strays func(pod *corev1.Pod, killed int)
	// CNIResults is where CNI's library notes what it gave to sandboxes; empty means /var/lib/cni/results.
	CNIResults string
	// Relisted is told of every look through the runtime: how long it took, how long after the one before it began (0
	// for the first), how many sandboxes are ready, and how many containers are in which state. May be nil.
	Relisted func(took, after time.Duration, sandboxes int, containers map[string]int)
	// MinOOMScore is the lowest oom_score_adj that the runtime may set; see LowestOOMScore.
	MinOOMScore int64
}

// Runtime makes, reads and ends the sandboxes and containers of one node. It is safe for concurrent use.
type Runtime struct {
	cfg      Config
	service  internalapi.RuntimeService
	users    *users
	logs     *logs.Logs
	messages messages
	// now tells the time.
	now func() time.Time

	mu sync.Mutex // guards what is below
	// called is the runtime's name, empty until it was asked.
	called string
	// known holds what was read of containers and sandboxes that cannot change any more in their present state.
	containers map[string]podworker.Container
	sandboxes  map[string]podworker.Sandbox
}

// New returns a Runtime; it makes no call.
func New(cfg Config) *Runtime {
	if cfg.CNIResults == "" {
		cfg.CNIResults = cniResults
	}
	return &Runtime{
		cfg:        cfg,
		service:    cfg.Service,
		users:      &users{root: cfg.PodsRoot},
		logs:       logs.New(cfg.Service, cfg.LogRoot, cfg.LinkRoot, cfg.MaxLogSize, cfg.MaxLogFiles),
		now:        time.Now,
		messages:   messages{pods: cfg.PodsRoot, logs: cfg.LogRoot},
		containers: map[string]podworker.Container{},
		sandboxes:  map[string]podworker.Sandbox{},
	}
}

// Watch looks through the runtime until ctx ends.
func (r *Runtime) Watch(ctx context.Context, w pleg.Watcher) {
	g := pleg.Generator{Service: r.service, Lister: r.cfg.Lister, Relisted: r.cfg.Relisted, Held: r.forget}
	g.Watch(ctx, w)
}

// forget drops what is remembered of containers and sandboxes that are no more.
func (r *Runtime) forget(sandbox, container func(id string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.sandboxes, func(id string, _ podworker.Sandbox) bool { return !sandbox(id) })
	maps.DeleteFunc(r.containers, func(id string, _ podworker.Container) bool { return !container(id) })
}

func (r *Runtime) podDir(uid types.UID) string { return filepath.Join(r.cfg.PodsRoot, string(uid)) }

func podFilter(uid types.UID) map[string]string {
	return map[string]string{labels.PodUID: string(uid)}
}

// Observe reads what the runtime holds for the pod.
func (r *Runtime) Observe(ctx context.Context, uid types.UID) (*podworker.Runtime, error) {
	sandboxes, err := r.service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: podFilter(uid)})
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes of pod %s: %w", uid, err)
	}
	containers, err := r.service.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: podFilter(uid)})
	if err != nil {
		return nil, fmt.Errorf("list the containers of pod %s: %w", uid, err)
	}
	out := &podworker.Runtime{
		Sandboxes:  make([]podworker.Sandbox, 0, len(sandboxes)),
		Containers: make([]podworker.Container, 0, len(containers)),
	}
	for _, s := range sandboxes {
		sandbox, err := r.readSandbox(ctx, s)
		if err != nil {
			return nil, err
		}
		if sandbox != nil {
			out.Sandboxes = append(out.Sandboxes, *sandbox)
		}
	}
	for _, c := range containers {
		container, err := r.readContainer(ctx, c)
		if err != nil {
			return nil, err
		}
		if container != nil {
			out.Containers = append(out.Containers, *container)
		}
		out.GraceSeconds = max(out.GraceSeconds, labels.GraceOf(c.Annotations))
	}
	return out, nil
}

func (r *Runtime) readSandbox(ctx context.Context, s *runtimeapi.PodSandbox) (*podworker.Sandbox, error) {
	ready := s.State == runtimeapi.PodSandboxState_SANDBOX_READY
	r.mu.Lock()
	known, ok := r.sandboxes[s.Id]
	r.mu.Unlock()
	if ok && known.Ready == ready {
		return &known, nil
	}
	resp, err := r.service.PodSandboxStatus(ctx, s.Id, false)
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the status of sandbox %s: %w", s.Id, err)
	}
	st := resp.Status
	out := podworker.Sandbox{
		ID:        s.Id,
		Attempt:   st.GetMetadata().GetAttempt(),
		Ready:     st.State == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: time.Unix(0, st.CreatedAt),
		HostNetwork: st.GetLinux().GetNamespaces().GetOptions().GetNetwork() ==
			runtimeapi.NamespaceMode_NODE,
	}
	if ip := st.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
		for _, more := range st.GetNetwork().GetAdditionalIps() {
			out.IPs = append(out.IPs, more.Ip)
		}
	}
	r.mu.Lock()
	r.sandboxes[s.Id] = out
	r.mu.Unlock()
	return &out, nil
}

func (r *Runtime) readContainer(ctx context.Context, c *runtimeapi.Container) (*podworker.Container, error) {
	state := pleg.StateOf(c.State)
	r.mu.Lock()
	known, ok := r.containers[c.Id]
	r.mu.Unlock()
	if ok && known.State == state {
		return &known, nil
	}
	st, err := r.statusOf(ctx, c.Id)
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the status of container %s: %w", c.Id, err)
	}
	out := r.describe(st, c.PodSandboxId)
	if out.State == podworker.Running || out.State == podworker.Exited && r.now().Sub(out.FinishedAt) >= reasonMayCome {
		r.mu.Lock()
		r.containers[c.Id] = out
		r.mu.Unlock()
	}
	return &out, nil
}

// statusOf is the status of a container. Of one that was killed just now, for no reason that is told, it is asked for
// once more a moment later.
func (r *Runtime) statusOf(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := r.service.ContainerStatus(ctx, id, false)
	if err != nil {
		return nil, err
	}
	st := resp.Status
	killed := st.State == runtimeapi.ContainerState_CONTAINER_EXITED && st.ExitCode == 128+int32(syscall.SIGKILL)
	if !killed || st.Reason != "Error" || r.now().Sub(unixNano(st.FinishedAt)) >= killedJustNow {
		return st, nil
	}
	select {
	case <-ctx.Done():
		return st, nil
	case <-time.After(reasonComes):
	}
	resp, err = r.service.ContainerStatus(ctx, id, false)
	if err != nil {
		return nil, err
	}
	return resp.Status, nil
}

func (r *Runtime) describe(st *runtimeapi.ContainerStatus, sandboxID string) podworker.Container {
	out := podworker.Container{
		ID:        st.Id,
		Name:      st.Labels[labels.ContainerName],
		SandboxID: sandboxID,
		Attempt:   st.GetMetadata().GetAttempt(),
		State:     pleg.StateOf(st.State),
		SpecHash:  podworker.ParseHash(st.Annotations[labels.Hash]),
		Image:     st.GetImage().GetImage(),
		ImageID:   st.ImageRef,
		CreatedAt: unixNano(st.CreatedAt),
		StartedAt: unixNano(st.StartedAt),
		Resources: labels.ResourcesOf(st.Annotations),
		Recorded:  labels.RecordedSpec(st.Labels[labels.ContainerName], st.Annotations),

		VolumeImages: labels.VolumeImagesOf(st.Annotations),

		User: userOf(st.User), StopSignal: signalOf(st.StopSignal),
	}
	if given := st.GetImage().GetUserSpecifiedImage(); given != "" {
		out.Image = given
	} else if name := st.Annotations[labels.Image]; name != "" {
		out.Image = name
	}
	for _, m := range st.Mounts {
		if m.RecursiveReadOnly {
			out.ReadOnlyBelow = append(out.ReadOnlyBelow, m.ContainerPath)
		}
	}
	if out.State == podworker.Exited {
		out.FinishedAt, out.ExitCode = unixNano(st.FinishedAt), st.ExitCode
		out.Reason, out.Message = st.Reason, st.Message
		if out.FinishedAt.IsZero() {
			// It never ran: the runtime gave no time of its end.
			out.FinishedAt = out.CreatedAt
		}
		out.Message += r.messages.last(st)
	}
	return out
}

func unixNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}
