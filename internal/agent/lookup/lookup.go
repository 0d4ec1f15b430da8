// Package lookup finds the containers and sandboxes that those who call a node ask for.
package lookup

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/agent/streaming"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Lookup finds the containers that logs and streams are about; it is a streaming.Lookup.
type Lookup struct {
	Sources *sources.Sources
	Runtime *cri.Runtime
	// Static finds the static pod of a name, nil if there is none.
	Static func(namespace, name string) *corev1.Pod
}

// UIDOf is the UID under which the runtime knows a pod of the API.
func (l Lookup) UIDOf(pod *corev1.Pod) types.UID {
	if podfacts.IsMirror(pod) {
		if static := l.Static(pod.Namespace, pod.Name); static != nil {
			return static.UID
		}
	}
	return pod.UID
}

// Container finds the container that was made last, or with previous the one whose end the status tells of.
func (l Lookup) Container(ctx context.Context, namespace, pod, container string, previous bool) (streaming.Container,
	error) {
	p := l.Sources.Pod(namespace, pod)
	if p == nil {
		return streaming.Container{}, apierrors.NewNotFound(corev1.Resource("pods"), pod)
	}
	spec := podfacts.Container(p, container)
	if spec == nil {
		return streaming.Container{}, apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", container,
			pod))
	}
	status := podfacts.ContainerStatus(&p.Status, container)
	var id string
	var err error
	if previous {
		id = lastID(status)
	} else if id, err = l.Runtime.Newest(ctx, l.UIDOf(p), container); err != nil {
		return streaming.Container{}, err
	}
	logPath := ""
	if id != "" {
		if logPath, err = l.Runtime.LogOf(ctx, id); err != nil {
			return streaming.Container{}, err
		}
	}
	switch {
	case logPath != "":
		return streaming.Container{ID: id, LogPath: logPath, LogRoot: l.Runtime.LogRoot(), TTY: spec.TTY}, nil
	case previous:
		return streaming.Container{}, apierrors.NewBadRequest(fmt.Sprintf(
			"previous terminated container %q in pod %q not found", container, pod,
		))
	}
	reason := "ContainerCreating"
	if status != nil && status.State.Waiting != nil {
		reason = status.State.Waiting.Reason
	}
	return streaming.Container{}, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s",
		container, pod, reason))
}

// lastID is the runtime's ID of the container that ended before the present state of its status.
func lastID(s *corev1.ContainerStatus) string {
	if s == nil || s.LastTerminationState.Terminated == nil {
		return ""
	}
	_, id, _ := strings.Cut(s.LastTerminationState.Terminated.ContainerID, "://")
	return id
}

// Sandbox finds the ID of the pod's running sandbox.
func (l Lookup) Sandbox(ctx context.Context, namespace, pod string) (string, error) {
	p := l.Sources.Pod(namespace, pod)
	if p == nil {
		return "", apierrors.NewNotFound(corev1.Resource("pods"), pod)
	}
	id, err := l.Runtime.Sandbox(ctx, l.UIDOf(p))
	if err != nil {
		return "", err
	}
	if id == "" {
		return "", apierrors.NewBadRequest(fmt.Sprintf("pod %q has no running sandbox", pod))
	}
	return id, nil
}

// Streams is cri.Runtime in the words of streaming.
type Streams struct{ *cri.Runtime }

// Exec runs a command in a container.
func (s Streams) Exec(ctx context.Context, id string, command []string, want streaming.Streams) (*url.URL, error) {
	return s.Runtime.Exec(ctx, id, command, cri.Streams(want))
}

// Attach connects to a container's process.
func (s Streams) Attach(ctx context.Context, id string, want streaming.Streams) (*url.URL, error) {
	return s.Runtime.Attach(ctx, id, cri.Streams(want))
}
