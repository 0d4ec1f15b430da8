package cri

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// settleReadOnly decides of mounts that are to be for reading with all that is mounted below them, if possible, whether
// it is. Where it must be, and is not possible, the container does not run: it could write what it was not admitted to.
func (r *Runtime) settleReadOnly(ctx context.Context, spec *ContainerSpec) error {
	asked := func(m Mount) bool {
		return m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled ||
			m.RecursiveReadOnly == corev1.RecursiveReadOnlyIfPossible
	}
	if !slices.ContainsFunc(spec.Mounts, asked) {
		return nil
	}
	handler, err := r.handlerOf(ctx, spec.Pod)
	if err != nil {
		return err
	}
	able, err := r.can(ctx, handler, (*runtimeapi.RuntimeHandlerFeatures).GetRecursiveReadOnlyMounts)
	if err != nil {
		return fmt.Errorf("ask the container runtime for recursive read-only mounts: %w", err)
	}
	spec.Mounts = slices.Clone(spec.Mounts)
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		switch {
		case !asked(*m):
		case able:
			m.RecursiveReadOnly = corev1.RecursiveReadOnlyEnabled
		case m.RecursiveReadOnly == corev1.RecursiveReadOnlyIfPossible:
			m.RecursiveReadOnly = corev1.RecursiveReadOnlyDisabled
		default:
			return &ConfigError{fmt.Sprintf(
				"the mount at %s asks for recursiveReadOnly, and the container runtime does not support that (containerd 2.0 "+
					"with runc 1.1 or newer does)",
				m.ContainerPath,
			)}
		}
	}
	return nil
}
