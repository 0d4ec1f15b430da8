package images

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/node/imagepull"
)

// Stock pulls images before pods need them, and keeps them. It is a streaming.Images.
type Stock struct {
	Manager *Manager
	Pinned  *Pins
}

// Check implements streaming.Images.
func (s Stock) Check(image string) error {
	if _, err := PinName(image); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// Pull implements streaming.Images. An image that is to be kept is so before it is there, so that nobody removes it in
// between.
func (s Stock) Pull(ctx context.Context, image string, pin, always bool) imagepull.Progress {
	fail := func(err error) imagepull.Progress {
		return imagepull.Progress{State: imagepull.Failed, Message: err.Error()}
	}
	name, err := PinName(image)
	if err != nil {
		return fail(err)
	}
	ended := func(bool) error { return nil }
	if pin {
		if ended, err = s.Pinned.Add(name); err != nil {
			return fail(err)
		}
	}
	bytes, present, err := s.Manager.Pull(ctx, image, always)
	if err = errors.Join(err, ended(err == nil)); err != nil {
		return fail(err)
	}
	klog.FromContext(ctx).Info("Pulled an image that was asked for", "image", image, "kept", pin, "present", present)
	if present {
		return imagepull.Progress{State: imagepull.Present, Bytes: bytes}
	}
	return imagepull.Progress{State: imagepull.Pulled, Bytes: bytes}
}

// Pins implements streaming.Images.
func (s Stock) Pins() ([]string, error) { return s.Pinned.Names() }

// Unpin implements streaming.Images.
func (s Stock) Unpin(image string) (bool, error) {
	name, err := PinName(image)
	if err != nil {
		return false, err
	}
	return s.Pinned.Remove(name)
}
