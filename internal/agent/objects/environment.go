package objects

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/staticpods"
)

// Environment returns what computes the variables of containers. Static pods start before anything is known of
// Services.
func (o Reader) Environment(hostIPs func() []string) func(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, podIPs []string,
) ([]env.Var, error) {
	return func(ctx context.Context, pod *corev1.Pod, c *corev1.Container, podIPs []string) ([]env.Var, error) {
		if !o.ServicesKnown() && !staticpods.IsUID(pod.UID) {
			return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
		}
		return env.Build(ctx, pod, c, podIPs, hostIPs(), o)
	}
}
