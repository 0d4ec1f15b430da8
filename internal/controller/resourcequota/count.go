package resourcequota

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	usage "github.com/everynode/everynode/internal/objects/quota"
)

// countPrefix begins the names of numbers of objects.
const countPrefix = "count/"

// count measures what a quota's namespace uses of what it limits. With an error it tells of the rest.
func (r *reconciler) count(ctx context.Context, q *corev1.ResourceQuota) (corev1.ResourceList, error) {
	list := func(resource schema.GroupResource) generic.ListFuncByNamespace {
		return func(namespace string) ([]runtime.Object, error) { return r.list(ctx, resource, namespace) }
	}
	measures := generic.NewRegistry(usage.Evaluators(list, r.cfg.Clock.Now))
	var added map[schema.GroupResource]schema.GroupVersionResource
	for name := range q.Spec.Hard {
		resource, counts := strings.CutPrefix(string(name), countPrefix)
		of := schema.ParseGroupResource(resource)
		if !counts || measures.Get(of) != nil {
			continue
		}
		if _, known := r.resources[of]; known {
			measures.Add(generic.NewObjectCountEvaluator(of, list(of), ""))
			continue
		}
		if added == nil {
			added = r.added(ctx)
		}
		if version, known := added[of]; known {
			measures.Add(generic.NewObjectCountEvaluator(
				of, func(namespace string) ([]runtime.Object, error) { return r.number(ctx, version, namespace) }, "",
			))
		}
	}
	out, err := quota.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, measures, q.Spec.ScopeSelector)
	if err != nil {
		return out, fmt.Errorf("count what namespace %s uses: %w", q.Namespace, err)
	}
	return out, nil
}

// added are the resources that others brought. One that nobody knows at the moment keeps its number.
func (r *reconciler) added(ctx context.Context) map[schema.GroupResource]schema.GroupVersionResource {
	out := map[schema.GroupResource]schema.GroupVersionResource{}
	all, _ := r.cfg.Added(ctx) // what is known, it lists with an error too
	for _, resource := range all {
		out[resource.GroupResource()] = resource
	}
	return out
}

// list lists objects from the cache.
func (r *reconciler) list(ctx context.Context, of schema.GroupResource, namespace string) ([]runtime.Object, error) {
	resource, ok := r.resources[of]
	if !ok {
		return nil, nil // not served, so there is none
	}
	var into client.ObjectList
	if resource.Prototype == nil {
		into = &metav1.PartialObjectMetadataList{}
		into.GetObjectKind().SetGroupVersionKind(resource.GVK.GroupVersion().WithKind(resource.GVK.Kind + "List"))
	} else {
		made, err := scheme.Scheme.New(resource.GVK.GroupVersion().WithKind(resource.GVK.Kind + "List"))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", of, err)
		}
		into = made.(client.ObjectList)
	}
	if err := r.reader.List(ctx, into, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list %s in namespace %s: %w", of, namespace, err)
	}
	return meta.ExtractList(into)
}

// number asks how many objects there are of a kind that the cache does not show. It returns as many of nothing.
func (r *reconciler) number(ctx context.Context, of schema.GroupVersionResource,
	namespace string) ([]runtime.Object, error) {
	found, err := r.cfg.Metadata.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("count %s in namespace %s: %w", of.GroupResource(), namespace, err)
	}
	n := int64(len(found.Items))
	if found.RemainingItemCount != nil {
		n += *found.RemainingItemCount
	}
	return make([]runtime.Object, n), nil
}
