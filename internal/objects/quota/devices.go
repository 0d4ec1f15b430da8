package quota

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

const deviceClaimCount corev1.ResourceName = "count/resourceclaims.resource.k8s.io"

// devices measures ResourceClaims: how many there are, and how many devices of each class they may get.
type devices struct{ unscoped }

var _ quota.Evaluator = &devices{}

// GroupResource implements quota.Evaluator.
func (d *devices) GroupResource() schema.GroupResource { return resourcev1.Resource("resourceclaims") }

// Constraints implements quota.Evaluator.
func (d *devices) Constraints(_ []corev1.ResourceName, item runtime.Object) error {
	_, err := deviceClaimOf(item)
	return err
}

// Matches implements quota.Evaluator.
func (d *devices) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, d.MatchingResources, generic.MatchesNoScopeFunc)
}

// MatchingResources implements quota.Evaluator.
func (d *devices) MatchingResources(input []corev1.ResourceName) (out []corev1.ResourceName) {
	for _, name := range input {
		if name == deviceClaimCount || strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) {
			out = append(out, name)
		}
	}
	return out
}

// Usage implements quota.Evaluator. What a claim may get counts, not what it got: of alternatives, the most of each
// class.
func (d *devices) Usage(item runtime.Object) (corev1.ResourceList, error) {
	claim, err := deviceClaimOf(item)
	if err != nil {
		return nil, err
	}
	out := corev1.ResourceList{deviceClaimCount: *resource.NewQuantity(1, resource.DecimalSI)}
	for _, r := range claim.Spec.Devices.Requests {
		most := map[string]int64{}
		if e := r.Exactly; e != nil {
			most[e.DeviceClassName] = number(e.AllocationMode, e.Count)
		}
		for _, sub := range r.FirstAvailable {
			most[sub.DeviceClassName] = max(most[sub.DeviceClassName], number(sub.AllocationMode, sub.Count))
		}
		for class, n := range most {
			name := corev1.ResourceName(class + corev1.ResourceClaimsPerClass)
			sum := out[name]
			sum.Add(*resource.NewQuantity(n, resource.DecimalSI))
			out[name] = sum
		}
	}
	return out, nil
}

// number is how many devices a request may get.
func number(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	if mode == resourcev1.DeviceAllocationModeAll {
		return resourcev1.AllocationResultsMaxSize
	}
	return count
}

// UsageStats implements quota.Evaluator.
func (d *devices) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(options, d.list, generic.MatchesNoScopeFunc, d.Usage)
}

func deviceClaimOf(item runtime.Object) (*resourcev1.ResourceClaim, error) {
	claim, ok := item.(*resourcev1.ResourceClaim)
	if !ok {
		return nil, fmt.Errorf("expected a ResourceClaim but got a %T", item)
	}
	return claim, nil
}
