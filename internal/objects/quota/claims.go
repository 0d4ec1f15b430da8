package quota

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"

	"github.com/everynode/everynode/internal/objects/volume"
)

// claimNames are what claims use, whatever their class.
var claimNames = []corev1.ResourceName{
	"count/persistentvolumeclaims", corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage,
}

// ofClass is between the name of a class and what its claims use.
const ofClass = ".storageclass.storage.k8s.io/"

// claims measures PersistentVolumeClaims: how many there are, and how much they ask for, of each class as well.
type claims struct{ unscoped }

var _ quota.Evaluator = &claims{}

// GroupResource implements quota.Evaluator.
func (c *claims) GroupResource() schema.GroupResource {
	return corev1.Resource("persistentvolumeclaims")
}

// Constraints implements quota.Evaluator.
func (c *claims) Constraints(_ []corev1.ResourceName, item runtime.Object) error {
	_, err := claimOf(item)
	return err
}

// Matches implements quota.Evaluator.
func (c *claims) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, c.MatchingResources, generic.MatchesNoScopeFunc)
}

// MatchingResources implements quota.Evaluator.
func (c *claims) MatchingResources(input []corev1.ResourceName) []corev1.ResourceName {
	out := quota.Intersection(input, claimNames)
	for _, name := range input {
		if _, what, is := strings.Cut(string(name), ofClass); is &&
			(what == string(corev1.ResourceRequestsStorage) || what == string(corev1.ResourcePersistentVolumeClaims)) {
			out = append(out, name)
		}
	}
	return out
}

// Usage implements quota.Evaluator. A claim that is smaller than what its volume has grown to uses what that has.
func (c *claims) Usage(item runtime.Object) (corev1.ResourceList, error) {
	claim, err := claimOf(item)
	if err != nil {
		return nil, err
	}
	one := *resource.NewQuantity(1, resource.DecimalSI)
	out := corev1.ResourceList{"count/persistentvolumeclaims": one, corev1.ResourcePersistentVolumeClaims: one}
	asked, there := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if given := claim.Status.AllocatedResources.Storage(); there && given.Cmp(asked) > 0 {
		asked = *given
	}
	if there {
		out[corev1.ResourceRequestsStorage] = asked
	}
	if class := volume.ClaimClass(claim); class != "" {
		out[corev1.ResourceName(class+ofClass+string(corev1.ResourcePersistentVolumeClaims))] = one
		if there {
			out[corev1.ResourceName(class+ofClass+string(corev1.ResourceRequestsStorage))] = asked
		}
	}
	return out, nil
}

// UsageStats implements quota.Evaluator.
func (c *claims) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(options, c.list, generic.MatchesNoScopeFunc, c.Usage)
}

func claimOf(item runtime.Object) (*corev1.PersistentVolumeClaim, error) {
	claim, ok := item.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil, fmt.Errorf("expected a PersistentVolumeClaim but got a %T", item)
	}
	return claim, nil
}
