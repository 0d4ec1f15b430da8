package namespace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/namespace/plan"
)

// parallel is the number of resources emptied at a time.
const parallel = 8

// api is everything that the controller asks of the API server.
type api interface {
	// DeleteAll asks all objects of a resource in a namespace to go, pods with their grace period.
	DeleteAll(ctx context.Context, resource schema.GroupVersionResource, namespace string) error
	List(ctx context.Context, resource schema.GroupVersionResource,
		namespace string) ([]metav1.PartialObjectMetadata, error)
	UpdateStatus(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error)
	Finalize(ctx context.Context, ns *corev1.Namespace) error
}

// empty deletes what it may and tells what is left.
func (r *reconciler) empty(ctx context.Context, namespace string) plan.Remaining {
	remaining := plan.Remaining{Objects: map[schema.GroupResource]int{}, Finalizers: map[string]int{}}
	others := r.others
	if r.added != nil {
		var added []schema.GroupVersionResource
		added, remaining.Unknown = r.added(ctx)
		others = slices.Concat(others, added)
	}
	for _, group := range [][]schema.GroupVersionResource{r.pods, others} {
		r.emptyResources(ctx, namespace, group, &remaining)
		if remaining.Content() {
			break // pods may need their volumes, secrets and accounts until they end
		}
	}
	return remaining
}

func (r *reconciler) emptyResources(
	ctx context.Context, namespace string, resources []schema.GroupVersionResource, remaining *plan.Remaining,
) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, resource := range resources {
		group.Go(func() error {
			left, err := r.emptyResource(ctx, namespace, resource)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				remaining.Failures = append(remaining.Failures, err)
			}
			if len(left) > 0 {
				remaining.Objects[resource.GroupResource()] = len(left)
			}
			for i := range left {
				for _, finalizer := range left[i].Finalizers {
					remaining.Finalizers[finalizer]++
				}
			}
			return nil
		})
	}
	_ = group.Wait() // failures are part of what remains
}

// emptyResource lists first: most resources of most namespaces hold nothing.
func (r *reconciler) emptyResource(ctx context.Context, namespace string,
	resource schema.GroupVersionResource) ([]metav1.PartialObjectMetadata, error) {
	left, err := r.api.List(ctx, resource, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil // the kind itself is gone
	}
	if err != nil || len(left) == 0 {
		return nil, failed("list", resource, err)
	}
	if !allDeleting(left) {
		if err := r.api.DeleteAll(ctx, resource, namespace); err != nil {
			return left, failed("delete", resource, err)
		}
		left, err = r.api.List(ctx, resource, namespace)
	}
	return left, failed("list", resource, err)
}

func failed(verb string, resource schema.GroupVersionResource, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, resource.GroupResource(), err)
}

func allDeleting(objects []metav1.PartialObjectMetadata) bool {
	for i := range objects {
		if objects[i].DeletionTimestamp == nil {
			return false
		}
	}
	return true
}

// updateStatus writes conditions if they changed, and leaves the newest version in ns.
func (r *reconciler) updateStatus(ctx context.Context, ns *corev1.Namespace, remaining plan.Remaining) error {
	conditions, changed := plan.Conditions(ns.Status.Conditions, remaining, r.clock.Now())
	if !changed && ns.Status.Phase == corev1.NamespaceTerminating {
		return nil
	}
	updated := ns.DeepCopy()
	updated.Status.Phase = corev1.NamespaceTerminating
	updated.Status.Conditions = conditions
	written, err := r.api.UpdateStatus(ctx, updated)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	*ns = *written
	return nil
}

// clientAPI is the api over client-go.
type clientAPI struct {
	client   kubernetes.Interface
	metadata metadata.Interface
}

// DeleteAll implements api.
func (a clientAPI) DeleteAll(ctx context.Context, resource schema.GroupVersionResource, namespace string) error {
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	objects := a.metadata.Resource(resource).Namespace(namespace)
	err := objects.DeleteCollection(ctx, options, metav1.ListOptions{})
	if !apierrors.IsMethodNotSupported(err) {
		return err
	}
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		// A name of a server of others may be a path to something else; the client does not look.
		if words := restclient.IsValidPathSegmentName(list.Items[i].Name); len(words) > 0 {
			return fmt.Errorf("an object has a name that is none: %q %s", list.Items[i].Name, strings.Join(words, ", "))
		}
		if err := objects.Delete(ctx, list.Items[i].Name, options); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// List implements api.
func (a clientAPI) List(ctx context.Context, resource schema.GroupVersionResource,
	namespace string) ([]metav1.PartialObjectMetadata, error) {
	list, err := a.metadata.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// UpdateStatus implements api.
func (a clientAPI) UpdateStatus(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error) {
	return a.client.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{})
}

// Finalize implements api.
func (a clientAPI) Finalize(ctx context.Context, ns *corev1.Namespace) error {
	_, err := a.client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	return err
}
