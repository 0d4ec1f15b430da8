package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/agent/cri"
)

// lookup finds the containers that logs and streams are about.
type lookup struct {
	sources *sources
	runtime *cri.Runtime
}

// Container returns the pod's container, or with previous the one that ran before it. Errors tell the user what is wrong.
func (l lookup) Container(ctx context.Context, namespace, pod, container string, previous bool) (*cri.Found, error) {
	p := l.sources.pod(namespace, pod)
	if p == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod)
	}
	if !hasContainer(p, container) {
		return nil, apierrors.NewNotFound(corev1.Resource("containers"), container)
	}
	found, err := l.runtime.Find(ctx, p.UID, container, previous)
	if err != nil {
		return nil, err
	}
	if found != nil {
		return found, nil
	}
	if previous {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", container, pod))
	}
	reason := "ContainerCreating"
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; list[i].Name == container && w != nil {
				reason = w.Reason
			}
		}
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", container, pod, reason))
}

// Sandbox returns the ID of the pod's running sandbox.
func (l lookup) Sandbox(ctx context.Context, namespace, pod string) (string, error) {
	p := l.sources.pod(namespace, pod)
	if p == nil {
		return "", apierrors.NewNotFound(corev1.Resource("pods"), pod)
	}
	id, err := l.runtime.Sandbox(ctx, p.UID)
	if err != nil {
		return "", err
	}
	if id == "" {
		return "", apierrors.NewBadRequest(fmt.Sprintf("pod %q has no running sandbox", pod))
	}
	return id, nil
}

func hasContainer(pod *corev1.Pod, name string) bool {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return true
			}
		}
	}
	return false
}
