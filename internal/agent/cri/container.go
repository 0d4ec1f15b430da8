package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri/labels"
	"github.com/everynode/everynode/internal/agent/cri/logs"
)

// stopMargin is how long a runtime may take beyond the grace period to report that a container was killed.
const stopMargin = time.Minute

// Mount is one path of the node seen in a container.
type Mount struct {
	ContainerPath, HostPath string
	// Image is the runtime's name of an image to mount instead of HostPath, from ImagePath in it; empty for none.
	Image, ImagePath string
	ReadOnly         bool
	// RecursiveReadOnly says whether what is mounted below is for reading, too; empty means Disabled.
	RecursiveReadOnly corev1.RecursiveReadOnlyMode
	Propagation       corev1.MountPropagationMode
}

// Device is a device file of the node that a container may use; Permissions are of r, w and m.
type Device struct{ ContainerPath, HostPath, Permissions string }

// EnvVar is one environment variable.
type EnvVar struct{ Name, Value string }

// Image is an image that is present on the node.
type Image struct {
	// Ref is the runtime's identifier of the image.
	Ref string
	// UID is the numeric user that the image runs as, nil if it names one, in User, or is silent.
	UID  *int64
	User string
}

// ContainerSpec is everything of which a container is made.
type ContainerSpec struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	SandboxID string
	// SandboxAttempt and Attempt number the sandbox and the container.
	SandboxAttempt, Attempt uint32
	Image                   Image
	// Command and Args are those of the container with references to variables replaced.
	Command, Args []string
	Env           []EnvVar
	Mounts        []Mount
	// VolumeImages are the digests of the images behind its mounts, by the volume's name.
	VolumeImages map[string]string
	PodIPs       []string
	// ProcessesOf is the ID of the container whose processes this one sees too, unless all of the pod share theirs;
	// empty for none.
	ProcessesOf string
	// Devices are files of devices, CDIDevices names of devices in the Container Device Interface.
	Devices    []Device
	CDIDevices []string
	// Annotations are for the runtime, besides the agent's own.
	Annotations map[string]string
}

// ConfigError is an error that comes from what the pod asks for, not from the runtime.
type ConfigError struct{ message string }

// Error says what is wrong with the pod.
func (e *ConfigError) Error() string { return e.message }

// CreateContainer makes the container, not yet running, and returns its ID. What is wrong with the pod's own
// wishes is a *ConfigError.
func (r *Runtime) CreateContainer(ctx context.Context, spec ContainerSpec) (string, error) {
	if OwnUsers(spec.Pod) {
		handler, err := r.handlerOf(ctx, spec.Pod)
		if err == nil {
			err = r.checkUsers(ctx, spec.Pod, handler)
		}
		if err != nil {
			return "", err
		}
	}
	if err := r.settleReadOnly(ctx, &spec); err != nil {
		return "", err
	}
	config, err := r.containerConfig(&spec)
	if err != nil {
		return "", err
	}
	sandbox, err := r.sandboxConfig(spec.Pod, spec.SandboxAttempt)
	if err != nil {
		return "", err
	}
	logDir := filepath.Join(sandbox.LogDirectory, filepath.Dir(config.LogPath))
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return "", fmt.Errorf("make the log folder of container %s: %w", spec.Container.Name, err)
	}
	return r.service.CreateContainer(ctx, spec.SandboxID, config, sandbox)
}

// StartContainer starts a container that was made, and links its log. One whose log cannot be linked has started all
// the same.
func (r *Runtime) StartContainer(ctx context.Context, pod *corev1.Pod, name, id string, attempt uint32) error {
	if err := r.service.StartContainer(ctx, id); err != nil {
		return err
	}
	if err := r.logs.Link(pod, name, id, attempt); err != nil {
		klog.FromContext(ctx).Error(err, "Log collectors do not find the log of a container", "pod", klog.KObj(pod),
			"container", name)
	}
	return nil
}

func (r *Runtime) containerConfig(spec *ContainerSpec) (*runtimeapi.ContainerConfig, error) {
	security, err := r.securityContext(spec)
	if err != nil {
		return nil, err
	}
	mounts, err := r.mounts(spec)
	if err != nil {
		return nil, err
	}
	if own := security.NamespaceOptions.GetUsernsOptions(); own != nil {
		// On the disk files belong to the users that the pod sees, whatever the machine calls these.
		for _, m := range mounts {
			m.UidMappings, m.GidMappings = own.Uids, own.Gids
		}
	}
	c := spec.Container
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: spec.Attempt},
		Image:       &runtimeapi.ImageSpec{Image: spec.Image.Ref, UserSpecifiedImage: c.Image},
		Command:     spec.Command,
		Args:        spec.Args,
		WorkingDir:  c.WorkingDir,
		Mounts:      mounts,
		Labels:      labels.OfContainer(spec.Pod, c),
		Annotations: labels.ContainerAnnotations(spec.Pod, c, spec.Attempt),
		LogPath:     logs.Path(c.Name, spec.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       r.resources(spec.Pod, c),
			SecurityContext: security,
		},
	}
	labels.KeepVolumeImages(config.Annotations, spec.VolumeImages)
	for name, value := range spec.Annotations {
		config.Annotations[name] = value
	}
	for _, d := range spec.Devices {
		config.Devices = append(config.Devices, &runtimeapi.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath,
			Permissions: d.Permissions})
	}
	for _, name := range spec.CDIDevices {
		config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: name})
	}
	for _, v := range spec.Env {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	return config, nil
}

func stopSignal(c *corev1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	return runtimeapi.Signal(runtimeapi.Signal_value[signalPrefix+string(*c.Lifecycle.StopSignal)])
}

// signalPrefix is what the runtime's names of signals have before the API's.
const signalPrefix = "SIGNAL_"

// signalOf is the API's name of a signal, nil if the runtime names none.
func signalOf(s runtimeapi.Signal) *corev1.Signal {
	name, known := strings.CutPrefix(runtimeapi.Signal_name[int32(s)], signalPrefix)
	if !known || s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	signal := corev1.Signal(name)
	return &signal
}

// userOf is as whom a container was started, nil if the runtime does not say.
func userOf(u *runtimeapi.ContainerUser) *corev1.ContainerUser {
	if u == nil {
		return nil
	}
	out := &corev1.ContainerUser{}
	if l := u.Linux; l != nil {
		out.Linux = &corev1.LinuxContainerUser{UID: l.Uid, GID: l.Gid, SupplementalGroups: l.SupplementalGroups}
	}
	return out
}

// mounts returns the pod's mounts, its hosts file and the file for the container's last words.
func (r *Runtime) mounts(spec *ContainerSpec) ([]*runtimeapi.Mount, error) {
	out := make([]*runtimeapi.Mount, 0, len(spec.Mounts)+2)
	ownHosts := false
	for _, m := range spec.Mounts {
		ownHosts = ownHosts || m.ContainerPath == "/etc/hosts"
		mount := &runtimeapi.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, Readonly: m.ReadOnly,
			RecursiveReadOnly: m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled, Propagation: propagation(m.Propagation)}
		if m.Image != "" {
			mount.Image, mount.ImageSubPath = &runtimeapi.ImageSpec{Image: m.Image}, m.ImagePath
		}
		out = append(out, mount)
	}
	if !ownHosts {
		path, err := r.cfg.DNS.WriteHosts(r.podDir(spec.Pod.UID), spec.Pod, spec.PodIPs)
		if err != nil {
			return nil, err
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: "/etc/hosts", HostPath: path})
	}
	message := r.messages.path(spec.Pod.UID, spec.Container.Name, spec.Attempt)
	if err := os.MkdirAll(filepath.Dir(message), 0o750); err != nil {
		return nil, fmt.Errorf("make the message folder of container %s: %w", spec.Container.Name, err)
	}
	f, err := os.OpenFile(message, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("make the message file of container %s: %w", spec.Container.Name, err)
	}
	// Whatever user the container runs as must be able to write it, in spite of the umask.
	err = errors.Join(f.Chmod(0o666), f.Close())
	if err != nil {
		return nil, fmt.Errorf("open the message file of container %s to all: %w", spec.Container.Name, err)
	}
	return append(out, &runtimeapi.Mount{ContainerPath: labels.MessagePath(spec.Container), HostPath: message}), nil
}

func propagation(p corev1.MountPropagationMode) runtimeapi.MountPropagation {
	switch p {
	case corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case corev1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
}

// StopContainer asks the container to stop and kills it after grace.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+stopMargin)
	defer cancel()
	if err := r.service.StopContainer(ctx, id, int64(grace/time.Second)); err != nil && !notFound(err) {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// RemoveContainer removes a dead container, the link to its log, its log and its last words.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	resp, err := r.service.ContainerStatus(ctx, id, false)
	switch {
	case notFound(err):
	case err != nil:
		return fmt.Errorf("read the status of container %s: %w", id, err)
	default:
		if err := r.removeFiles(resp.Status); err != nil {
			return err
		}
	}
	if err := r.service.RemoveContainer(ctx, id); err != nil && !notFound(err) {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	r.mu.Lock()
	delete(r.containers, id)
	r.mu.Unlock()
	return nil
}

// removeFiles removes what this package made for the container, by names of its own making: the runtime's list of
// mounts has the pod's own too.
func (r *Runtime) removeFiles(st *runtimeapi.ContainerStatus) error {
	paths := []string{r.logs.LinkPath(st.Labels[labels.PodName], st.Labels[labels.PodNamespace],
		st.Labels[labels.ContainerName], st.Id)}
	if uid, name := st.Labels[labels.PodUID], st.Labels[labels.ContainerName]; uid != "" && name != "" {
		paths = append(paths, r.messages.path(types.UID(uid), name, st.GetMetadata().GetAttempt()))
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a file of container %s: %w", st.Id, err)
		}
	}
	if err := r.logs.Remove(st.LogPath); err != nil {
		return fmt.Errorf("remove the logs of container %s: %w", st.Id, err)
	}
	return nil
}

func notFound(err error) bool { return grpcstatus.Code(err) == codes.NotFound }

// newID is the ID of a container or sandbox; that of an image has its algorithm before it.
var newID = regexp.MustCompile(`(^|[^:0-9a-f])[0-9a-f]{64}\b`)

// ErrorText is the runtime's own words for an error, without the wrapping of the transport, and without the ID that
// every try gets again: the same trouble has the same words, and is one event that is counted.
func ErrorText(err error) string {
	text := err.Error()
	if s, ok := grpcstatus.FromError(err); ok {
		text = s.Message()
	}
	return newID.ReplaceAllString(text, "${1}ID")
}
