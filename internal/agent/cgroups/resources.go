package cgroups

import (
	"slices"
	"strconv"
	"strings"

	library "github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// How amounts of the processor become values of cgroups.
const (
	minShares    = 2
	maxShares    = 262144
	maxWeight    = 10000
	sharesPerCPU = 1024
	milliPerCPU  = 1000
	// QuotaPeriod is the time, in microseconds, of which a quota is a part.
	QuotaPeriod = 100_000
	minQuota    = 1000
)

// unlimited lifts a limit, whatever it is of.
const unlimited = -1

// CPUShares are the shares of so many thousandths of a processor.
func CPUShares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/milliPerCPU, minShares), maxShares)
}

// CPUQuota is the quota of so many thousandths of a processor.
func CPUQuota(milli int64) int64 {
	return max(milli*QuotaPeriod/milliPerCPU, minQuota)
}

// weightOf are shares in the way of version 2, as runc and the kubelet have them: one processor weighs 100, as much as
// a slice of systemd's does.
func weightOf(shares int64) int64 {
	return int64(library.ConvertCPUSharesToCgroupV2Value(uint64(shares)))
}

// orUnlimited is a limit; 0 is none.
func orUnlimited(limit int64) int64 {
	if limit == 0 {
		return unlimited
	}
	return limit
}

// Limits are what a pod may use together, in thousandths of a processor and in bytes; 0 for no limit.
type limits struct{ cpu, memory int64 }

func limitsOf(pod *corev1.Pod) (l limits) {
	if cpu, bounded := podfacts.Limit(pod, corev1.ResourceCPU); bounded {
		l.cpu = cpu.MilliValue()
	}
	if memory, bounded := podfacts.Limit(pod, corev1.ResourceMemory); bounded {
		l.memory = memory.Value()
	}
	return l
}

// resourcesOf are the limits in the library's words.
func (l limits) resources() *library.Resources {
	r := &library.Resources{CpuPeriod: QuotaPeriod, CpuQuota: unlimited, Memory: orUnlimited(l.memory)}
	if l.cpu > 0 {
		r.CpuQuota = CPUQuota(l.cpu)
	}
	return r
}

// setShares gives a share of the processor beside others, in the way of a version of cgroups.
func setShares(r *library.Resources, shares int64, unified bool) {
	if unified {
		r.CpuWeight = uint64(weightOf(shares))
	} else {
		r.CpuShares = uint64(shares)
	}
}

// PageLimits are what may be had of huge pages of each size: what is asked for, and nothing of the others.
func PageLimits(asked corev1.ResourceList, sizes []string) []*library.HugepageLimit {
	out := make([]*library.HugepageLimit, len(sizes))
	for i, size := range sizes {
		out[i] = &library.HugepageLimit{Pagesize: size}
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
		if i := slices.Index(sizes, pageSize(quantity.Value())); i >= 0 {
			out[i].Limit = uint64(amount.Value())
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

// higher says whether a limit is above the present one, as the kernel shows it. What is no positive number is no limit.
func higher(limit int64, now string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(now), " ")
	is, err := strconv.ParseInt(first, 10, 64)
	bounded := err == nil && is > 0
	return bounded && (limit <= 0 || limit > is)
}
