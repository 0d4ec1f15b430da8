package quota

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// serviceNames are what Services use.
var serviceNames = []corev1.ResourceName{
	"count/services", corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
}

// services measures Services: some have ports of all nodes, some a balancer outside.
type services struct{ unscoped }

var _ quota.Evaluator = &services{}

// GroupResource implements quota.Evaluator.
func (s *services) GroupResource() schema.GroupResource { return corev1.Resource("services") }

// Constraints implements quota.Evaluator.
func (s *services) Constraints(_ []corev1.ResourceName, item runtime.Object) error {
	_, err := serviceOf(item)
	return err
}

// Matches implements quota.Evaluator.
func (s *services) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, s.MatchingResources, generic.MatchesNoScopeFunc)
}

// MatchingResources implements quota.Evaluator.
func (s *services) MatchingResources(input []corev1.ResourceName) []corev1.ResourceName {
	return quota.Intersection(input, serviceNames)
}

// Usage implements quota.Evaluator.
func (s *services) Usage(item runtime.Object) (corev1.ResourceList, error) {
	service, err := serviceOf(item)
	if err != nil {
		return nil, err
	}
	nodePorts, balancers := 0, 0
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		nodePorts = len(service.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		nodePorts, balancers = balancedPorts(&service.Spec), 1
	}
	number := func(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	return corev1.ResourceList{"count/services": number(1), corev1.ResourceServices: number(1),
		corev1.ResourceServicesNodePorts: number(nodePorts), corev1.ResourceServicesLoadBalancers: number(balancers)}, nil
}

// balancedPorts counts the node ports of a Service with a balancer outside.
func balancedPorts(s *corev1.ServiceSpec) int {
	if s.AllocateLoadBalancerNodePorts == nil || *s.AllocateLoadBalancerNodePorts {
		return len(s.Ports)
	}
	n := 0
	for _, p := range s.Ports {
		if p.NodePort != 0 {
			n++
		}
	}
	return n
}

// UsageStats implements quota.Evaluator.
func (s *services) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(options, s.list, generic.MatchesNoScopeFunc, s.Usage)
}

func serviceOf(item runtime.Object) (*corev1.Service, error) {
	service, ok := item.(*corev1.Service)
	if !ok {
		return nil, fmt.Errorf("expected a Service but got a %T", item)
	}
	return service, nil
}
