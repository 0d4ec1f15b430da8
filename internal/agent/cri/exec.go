package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"
)

// ExecSync runs a command in a container and waits for it, for no longer than timeout; 0 means as long as ctx lasts.
// The error is set if the command could not be run or did not end in time, not if it failed.
func (r *Runtime) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	stdout, stderr, err = r.service.ExecSync(ctx, containerID, cmd, timeout)
	var exit utilexec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return stdout, stderr, int32(exit.ExitStatus()), nil
	}
	return stdout, stderr, 0, err
}

// Found is a container as looked up for logs and streams.
type Found struct {
	ID, SandboxID string
	// LogPath is the file with its output.
	LogPath string
	Running bool
	Attempt uint32
	// PodUID is its pod.
	PodUID types.UID
}

// Find returns the newest container of that name in the pod, or with previous the newest one that died before it; nil
// if there is none.
func (r *Runtime) Find(ctx context.Context, uid types.UID, name string, previous bool) (*Found, error) {
	labels := podFilter(uid)
	labels[labelContainerName] = name
	list, err := r.service.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels})
	if err != nil {
		return nil, fmt.Errorf("list the containers %s of pod %s: %w", name, uid, err)
	}
	var newest, before *runtimeapi.Container
	for _, c := range list {
		switch {
		case newest == nil || c.GetMetadata().GetAttempt() > newest.GetMetadata().GetAttempt():
			newest, before = c, newest
		case before == nil || c.GetMetadata().GetAttempt() > before.GetMetadata().GetAttempt():
			before = c
		}
	}
	if previous {
		newest = before
	}
	if newest == nil {
		return nil, nil
	}
	resp, err := r.service.ContainerStatus(ctx, newest.Id, false)
	if err != nil {
		return nil, fmt.Errorf("read the status of container %s: %w", newest.Id, err)
	}
	return &Found{
		ID: newest.Id, SandboxID: newest.PodSandboxId, LogPath: resp.Status.LogPath, PodUID: uid,
		Running: resp.Status.State == runtimeapi.ContainerState_CONTAINER_RUNNING,
		Attempt: newest.GetMetadata().GetAttempt(),
	}, nil
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
