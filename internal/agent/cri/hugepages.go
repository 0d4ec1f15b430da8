package cri

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cgroups"
)

// hugePages are a container's limits, of the sizes that the machine can limit.
func hugePages(c *corev1.Container, sizes []string) (out []*runtimeapi.HugepageLimit) {
	for _, l := range cgroups.PageLimits(c.Resources.Limits, sizes) {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: l.Pagesize, Limit: l.Limit})
	}
	return out
}
