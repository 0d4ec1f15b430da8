package cri

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	libcgroups "github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// limitsPages says whether the machine can keep pods from taking huge pages that they did not ask for.
func (c cgroups) limitsPages() bool {
	if !c.unified() {
		_, err := os.Stat(filepath.Join(c.mount, "hugetlb"))
		return err == nil
	}
	controllers, err := os.ReadFile(filepath.Join(c.mount, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "hugetlb")
}

// pageSizes are the machine's sizes of huge pages, in the kernel's words such as 2MB; none where it cannot limit them.
func (c cgroups) pageSizes() []string {
	if !c.limitsPages() {
		return nil
	}
	return libcgroups.HugePageSizes()
}

// pageLimits are what may be had of each size: what is asked for, and nothing of the others.
func pageLimits(asked corev1.ResourceList, sizes []string) map[string]int64 {
	out := make(map[string]int64, len(sizes))
	for _, size := range sizes {
		out[size] = 0
	}
	for name, amount := range asked {
		text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			continue // the API takes none such
		}
		if size := pageSize(quantity.Value()); slices.Contains(sizes, size) {
			out[size] = amount.Value()
		}
	}
	return out
}

// pageSize is a number of bytes as the kernel names a size of huge pages.
func pageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB"}
	unit := 0
	for ; bytes >= 1024 && bytes%1024 == 0 && unit < len(units)-1; unit++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[unit]
}

// hugePages are a container's limits.
func hugePages(c *corev1.Container, sizes []string) (out []*runtimeapi.HugepageLimit) {
	limits := pageLimits(c.Resources.Limits, sizes)
	for _, size := range sizes {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: size, Limit: uint64(limits[size])})
	}
	return out
}
