package images

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pull makes an image present for nobody in particular: with the credentials of the node alone. With always the
// registry is asked also for an image that is there. It returns the image's size, and whether it was there.
func (m *Manager) Pull(ctx context.Context, image string, always bool) (bytes uint64, present bool, err error) {
	name, err := normalize(image)
	if err != nil {
		return 0, false, err
	}
	if !always {
		there, err := m.size(ctx, name)
		if err != nil || there != nil {
			return there.GetSize(), there != nil, err
		}
	}
	ref, err := m.pullFor(ctx, &corev1.Pod{}, name)
	if err != nil {
		return 0, false, err
	}
	pulled, err := m.size(ctx, ref)
	if err == nil && pulled == nil {
		err = fmt.Errorf("pulled as %s, and then not found", ref)
	}
	return pulled.GetSize(), false, err
}

// Fetch makes an image present as Ensure does, with the credentials of a pod that does not need it. It tells no events.
func (m *Manager) Fetch(ctx context.Context, pod *corev1.Pod, image string, policy corev1.PullPolicy) error {
	name, err := normalize(image)
	if err != nil {
		return err
	}
	policy = pullPolicy(&corev1.Container{Image: image, ImagePullPolicy: policy})
	there, err := m.size(ctx, name)
	switch {
	case err != nil:
		return err
	case there != nil && policy != corev1.PullAlways:
		return nil
	case policy == corev1.PullNever:
		return fmt.Errorf("image %s is not present with pull policy of Never", image)
	}
	_, err = m.pullFor(ctx, pod, name)
	return err
}

// pullFor pulls an image with the credentials of a pod and of the node, and returns the runtime's identifier for it.
func (m *Manager) pullFor(ctx context.Context, pod *corev1.Pod, name string) (ref string, err error) {
	creds, err := m.credentials(ctx, pod, name)
	if err != nil {
		return "", err
	}
	p, err := m.pull(ctx, name, creds.auths)
	switch {
	case err == nil:
		return p.ref, nil
	case ctx.Err() != nil:
		return "", errors.New(text(err))
	}
	return "", creds.explain(err)
}

// size returns an image with its size; nil if it is not there.
func (m *Manager) size(ctx context.Context, name string) (*runtimeapi.Image, error) {
	resp, err := m.cfg.Service.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
	if notThere(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for image %s: %w", name, err)
	}
	return resp.GetImage(), nil
}
