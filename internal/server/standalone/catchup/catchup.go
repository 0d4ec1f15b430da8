// Package catchup waits until a cache has seen what the API holds. Who begins to lead may have one that is behind: it
// shows no pod as gone that the leader before has just deleted, and no rollout as paused that somebody has paused.
package catchup

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

const (
	// pageSize is how many objects are read in one answer, and then forgotten but for their versions.
	pageSize = 500
	// lookEvery is the time between two looks at the cache, retryEvery that after an error.
	lookEvery  = 200 * time.Millisecond
	retryEvery = time.Second
)

// Waiter compares a cache with the API.
type Waiter struct {
	API   metadata.Interface
	Cache client.Reader
	// Leads chooses the DaemonSets whose pods count.
	Leads func(*appsv1.DaemonSet) bool
}

// kind is one whose objects decisions go by.
type kind struct {
	resource schema.GroupVersionResource
	list     func() client.ObjectList
}

var kinds = []kind{
	{v1alpha1.GroupVersion.WithResource("rolloutpolicies"),
		func() client.ObjectList { return &v1alpha1.RolloutPolicyList{} }},
	{v1alpha1.GroupVersion.WithResource("daemonsetrollouts"),
		func() client.ObjectList { return &v1alpha1.DaemonSetRolloutList{} }},
	{appsv1.SchemeGroupVersion.WithResource("daemonsets"), func() client.ObjectList { return &appsv1.DaemonSetList{} }},
	{appsv1.SchemeGroupVersion.WithResource("controllerrevisions"),
		func() client.ObjectList { return &appsv1.ControllerRevisionList{} }},
}

var pods = kind{corev1.SchemeGroupVersion.WithResource("pods"), func() client.ObjectList { return &corev1.PodList{} }}

// Await returns once the cache has seen all that the API held when it was called, of policies, rollouts, DaemonSets,
// their revisions, and the pods of those that are led. It reports false if ctx ends before.
func (w Waiter) Await(ctx context.Context) bool {
	began := time.Now()
	for {
		err := w.once(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			klog.FromContext(ctx).Info("The cache has seen what the API holds", "after", time.Since(began))
			return true
		}
		klog.FromContext(ctx).Error(err, "Cannot tell yet whether the cache is behind, so nothing is decided")
		if !pause(ctx, retryEvery) {
			return false
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (w Waiter) once(ctx context.Context) error {
	for _, k := range kinds {
		err := w.reach(ctx, k, "", labels.Everything())
		if err != nil {
			return err
		}
	}
	var sets appsv1.DaemonSetList
	err := w.Cache.List(ctx, &sets)
	if err != nil {
		return fmt.Errorf("read DaemonSets: %w", err)
	}
	for i := range sets.Items {
		ds := &sets.Items[i]
		if !w.Leads(ds) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
		if err != nil {
			return fmt.Errorf("read the selector of DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
		}
		err = w.reach(ctx, pods, ds.Namespace, selector)
		if err != nil {
			return err
		}
	}
	return nil
}

// reach waits until the cache has these objects in the versions that the API has now, or later ones.
func (w Waiter) reach(ctx context.Context, k kind, namespace string, selector labels.Selector) error {
	live, at, err := w.live(ctx, k, namespace, selector)
	if apierrors.IsNotFound(err) {
		return nil // the API has no such kind
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", k.resource.Resource, err)
	}
	cached, err := w.cached(ctx, k, namespace, selector)
	if err != nil {
		return err
	}
	wanted, err := behind(live, at, cached)
	for err == nil && len(wanted) > 0 {
		klog.FromContext(ctx).V(2).Info("The cache is behind", "of", k.resource.Resource, "objects", len(wanted))
		if !pause(ctx, lookEvery) {
			return ctx.Err()
		}
		cached, err = w.cached(ctx, k, namespace, selector)
		if err != nil {
			return err
		}
		wanted, err = left(wanted, cached, func(uid types.UID, o object) (bool, error) {
			return w.exists(ctx, k, uid, o)
		})
	}
	return err
}

// object is what is kept of one.
type object struct{ namespace, name, version string }

// live lists objects as they are stored, page by page; at is the version of the list.
func (w Waiter) live(ctx context.Context, k kind, namespace string, selector labels.Selector) (
	out map[types.UID]object, at string, err error) {
	out = map[types.UID]object{}
	options := metav1.ListOptions{LabelSelector: selector.String(), Limit: pageSize}
	for {
		list, err := w.API.Resource(k.resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, "", err
		}
		for i := range list.Items {
			o := &list.Items[i]
			out[o.UID] = object{o.Namespace, o.Name, o.ResourceVersion}
		}
		at, options.Continue = list.ResourceVersion, list.Continue
		if options.Continue == "" {
			return out, at, nil
		}
	}
}

func (w Waiter) cached(ctx context.Context, k kind, namespace string, selector labels.Selector) (map[types.UID]object,
	error) {
	list := k.list()
	err := w.Cache.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("read %s of the cache: %w", k.resource.Resource, err)
	}
	out := make(map[types.UID]object, meta.LenList(list))
	return out, meta.EachListItem(list, func(o runtime.Object) error {
		is, err := meta.Accessor(o)
		if err == nil {
			out[is.GetUID()] = object{is.GetNamespace(), is.GetName(), is.GetResourceVersion()}
		}
		return err
	})
}

// exists reports whether an object that the cache lacks is still there: it may have seen it come and go.
func (w Waiter) exists(ctx context.Context, k kind, uid types.UID, o object) (bool, error) {
	is, err := w.API.Resource(k.resource).Namespace(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s/%s: %w", k.resource.Resource, o.namespace, o.name, err)
	}
	return is.UID == uid, nil
}
