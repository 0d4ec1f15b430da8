package cri

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"github.com/everynode/everynode/internal/agent/cri/labels"
)

// lateError is a command that did not end in time. It is a context.DeadlineExceeded, whatever the client of the runtime
// makes of the runtime's answer.
type lateError struct{ error }

// Is implements the interface of errors.Is.
func (lateError) Is(target error) bool { return target == context.DeadlineExceeded }

// ExecSync runs a command in a container and waits for it, for no longer than timeout; 0 means as long as ctx lasts.
// The error is set if the command could not be run, and context.DeadlineExceeded if it did not end in time; not if it
// failed.
func (r *Runtime) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout,
	stderr []byte, exitCode int32, err error) {
	stdout, stderr, err = r.service.ExecSync(ctx, containerID, cmd, timeout)
	var exit utilexec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return stdout, stderr, int32(exit.ExitStatus()), nil
	}
	if errors.Is(err, criclient.ErrCommandTimedOut) {
		err = lateError{err}
	}
	return stdout, stderr, 0, err
}

// Newest returns the ID of the newest container of that name in the pod, empty if there is none.
func (r *Runtime) Newest(ctx context.Context, uid types.UID, name string) (string, error) {
	selector := podFilter(uid)
	selector[labels.ContainerName] = name
	list, err := r.service.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return "", fmt.Errorf("list the containers %s of pod %s: %w", name, uid, err)
	}
	var newest *runtimeapi.Container
	for _, c := range list {
		if newest == nil || c.GetMetadata().GetAttempt() > newest.GetMetadata().GetAttempt() {
			newest = c
		}
	}
	return newest.GetId(), nil
}

// LogOf returns the file that the runtime writes the container's output to, empty if there is no such container.
func (r *Runtime) LogOf(ctx context.Context, id string) (string, error) {
	resp, err := r.service.ContainerStatus(ctx, id, false)
	if notFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the status of container %s: %w", id, err)
	}
	return resp.Status.LogPath, nil
}

// Running says whether the container runs.
func (r *Runtime) Running(ctx context.Context, id string) (bool, error) {
	resp, err := r.service.ContainerStatus(ctx, id, false)
	if notFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the status of container %s: %w", id, err)
	}
	return resp.Status.State == runtimeapi.ContainerState_CONTAINER_RUNNING, nil
}

// Streams says which streams of a process are wanted.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// Exec returns the URL, good for one request, at which the runtime runs the command in the container.
func (r *Runtime) Exec(ctx context.Context, id string, command []string, s Streams) (*url.URL, error) {
	resp, err := r.service.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: command, Stdin: s.Stdin,
		Stdout: s.Stdout,
		Stderr: s.Stderr && !s.TTY, Tty: s.TTY})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// Attach returns the URL, good for one request, at which the runtime connects to the container's process.
func (r *Runtime) Attach(ctx context.Context, id string, s Streams) (*url.URL, error) {
	resp, err := r.service.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdin: s.Stdin, Stdout: s.Stdout,
		Stderr: s.Stderr && !s.TTY, Tty: s.TTY})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// PortForward returns the URL, good for one request, at which the runtime connects to ports in the sandbox.
func (r *Runtime) PortForward(ctx context.Context, sandboxID string, ports []int32) (*url.URL, error) {
	resp, err := r.service.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandboxID, Port: ports})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// Sandbox returns the ID of the pod's ready sandbox, empty if it has none.
func (r *Runtime) Sandbox(ctx context.Context, uid types.UID) (string, error) {
	list, err := r.service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: podFilter(uid),
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		return "", fmt.Errorf("list the sandboxes of pod %s: %w", uid, err)
	}
	if len(list) == 0 {
		return "", nil
	}
	return list[0].Id, nil
}
