// Package quota measures what objects use of what ResourceQuotas limit. Admission measures single objects by it, and
// the controller whole namespaces.
package quota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// List lists the objects of a resource in a namespace. Those that are only counted may be any objects.
type List func(resource schema.GroupResource) generic.ListFuncByNamespace

// legacy are the kinds whose number has a short name besides count/.
var legacy = map[string]corev1.ResourceName{
	"configmaps": corev1.ResourceConfigMaps, "resourcequotas": corev1.ResourceQuotas, "secrets": corev1.ResourceSecrets,
	"replicationcontrollers": corev1.ResourceReplicationControllers,
}

// Evaluators measure pods, Services, and claims to volumes and devices, and count those of the other resources that
// have a short name. Without a list they measure single objects only.
func Evaluators(list List, now func() time.Time) []quota.Evaluator {
	if list == nil {
		list = func(schema.GroupResource) generic.ListFuncByNamespace { return nil }
	}
	out := []quota.Evaluator{
		&pods{list: list(corev1.Resource("pods")), now: now},
		&services{unscoped{list(corev1.Resource("services"))}},
		&claims{unscoped{list(corev1.Resource("persistentvolumeclaims"))}},
		&devices{unscoped{list(resourcev1.Resource("resourceclaims"))}},
	}
	for resource, name := range legacy {
		out = append(out, generic.NewObjectCountEvaluator(corev1.Resource(resource), list(corev1.Resource(resource)), name))
	}
	return out
}
