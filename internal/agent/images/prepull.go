package images

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pull makes an image present for nobody in particular: with the credentials of the node alone. With always the registry is asked
// also for an image that is there. It returns the image's size, and whether it was there.
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
	creds, err := m.credentials(ctx, &corev1.Pod{}, name)
	if err != nil {
		return 0, false, err
	}
	p, err := m.pull(ctx, name, creds.auths)
	if err != nil {
		if creds.failed != nil && ctx.Err() == nil {
			return 0, false, fmt.Errorf("%s; besides, %w", text(err), creds.failed)
		}
		return 0, false, errors.New(text(err))
	}
	pulled, err := m.size(ctx, p.ref)
	if err == nil && pulled == nil {
		err = fmt.Errorf("pulled as %s, and then not found", p.ref)
	}
	return pulled.GetSize(), false, err
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
