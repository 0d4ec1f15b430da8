package garbagecollector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

// api is everything that the collector asks of the API server.
type api interface {
	// Get reads the object at id's coordinates, whatever its UID.
	Get(ctx context.Context, id graph.Identity) (*metav1.PartialObjectMetadata, error)
	Delete(ctx context.Context, id graph.Identity, options metav1.DeleteOptions) error
	Patch(ctx context.Context, id graph.Identity, patchType types.PatchType,
		body []byte) (*metav1.PartialObjectMetadata, error)
	// Dependents reads all objects that name the owner as theirs, from the API server and not from a cache.
	Dependents(ctx context.Context, owner graph.Identity) ([]graph.Identity, error)
}

// apply carries out a decision. Its errors are the API server's own: NotFound
// means that the object is gone, Conflict that it is not what the decision was made on.
func (c *Controller) apply(ctx context.Context, d graph.Decision) error {
	switch d.Action {
	case graph.Strip:
		return c.strip(ctx, d.Object.Identity, d.Owners)
	case graph.FinishForeground:
		return c.removeFinalizer(ctx, d.Object.Identity, metav1.FinalizerDeleteDependents)
	case graph.Delete:
		return c.delete(ctx, d)
	default:
		return fmt.Errorf("action %s cannot be applied", d.Action)
	}
}

func (c *Controller) delete(ctx context.Context, d graph.Decision) error {
	id, version := d.Object.Identity, d.Object.ResourceVersion
	if d.Unblock {
		object, err := c.unblock(ctx, d.Object)
		if err != nil {
			return err
		}
		version = object.ResourceVersion
	}
	klog.FromContext(ctx).V(3).Info("Deleting", "object", id, "reason", d.Reason, "policy", d.Policy)
	// The version guards against an owner that somebody adds at this moment.
	return c.api.Delete(ctx, id, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &id.UID, ResourceVersion: &version},
		PropagationPolicy: &d.Policy,
	})
}

// unblock lets an object's owners go without it.
func (c *Controller) unblock(ctx context.Context, o graph.Object) (*metav1.PartialObjectMetadata, error) {
	object, err := c.api.Patch(ctx, o.Identity, types.StrategicMergePatchType, unblockPatch(o))
	if !apierrors.IsUnsupportedMediaType(err) {
		return object, err
	}
	owners, no := slices.Clone(o.Owners), false
	for i := range owners {
		owners[i].BlockOwnerDeletion = &no
	}
	return c.api.Patch(ctx, o.Identity, types.MergePatchType, ownersPatch(o.UID, o.ResourceVersion, owners))
}

// strip removes references from an object. Kinds that know no strategic merge
// (custom ones) get the remaining list written as a whole.
func (c *Controller) strip(ctx context.Context, id graph.Identity, owners []types.UID) error {
	klog.FromContext(ctx).V(3).Info("Removing owner references", "object", id, "owners", owners)
	_, err := c.api.Patch(ctx, id, types.StrategicMergePatchType, stripPatch(id.UID, owners))
	if !apierrors.IsUnsupportedMediaType(err) {
		return err
	}
	object, err := c.api.Get(ctx, id)
	if err != nil {
		return err
	}
	remaining := slices.DeleteFunc(slices.Clone(object.OwnerReferences), func(ref metav1.OwnerReference) bool {
		return slices.Contains(owners, ref.UID)
	})
	_, err = c.api.Patch(ctx, id, types.MergePatchType, ownersPatch(id.UID, object.ResourceVersion, remaining))
	return err
}

// releaseAll strips one owner from many dependents. A dependent that is gone
// needs no release.
func (c *Controller) releaseAll(ctx context.Context, owner types.UID, dependents []graph.Identity) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.cfg.Workers)
	for _, id := range dependents {
		group.Go(func() error {
			err := c.strip(ctx, id, []types.UID{owner})
			if err == nil || apierrors.IsNotFound(err) {
				return nil
			}
			if apierrors.IsConflict(err) {
				// The name has a new bearer, or the list changed under a merge patch.
				_, found, liveErr := c.live(ctx, id)
				if liveErr == nil && !found {
					return nil
				}
			}
			return fmt.Errorf("release %s: %w", id, err)
		})
	}
	return group.Wait()
}

// removeFinalizer does nothing if the finalizer or the object is gone already.
func (c *Controller) removeFinalizer(ctx context.Context, id graph.Identity, finalizer string) error {
	const attempts = 5
	var err error
	for range attempts {
		var object *metav1.PartialObjectMetadata
		object, err = c.api.Get(ctx, id)
		if apierrors.IsNotFound(err) || (err == nil && object.UID != id.UID) {
			c.confirmAbsent(id)
			return nil
		}
		if err != nil {
			return err
		}
		index := slices.Index(object.Finalizers, finalizer)
		if index < 0 {
			return nil
		}
		klog.FromContext(ctx).V(3).Info("Removing finalizer", "object", id, "finalizer", finalizer)
		remaining := slices.Delete(slices.Clone(object.Finalizers), index, index+1)
		_, err = c.api.Patch(ctx, id, types.MergePatchType, finalizersPatch(id.UID, object.ResourceVersion, remaining))
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// metadataAPI is the api over client-go's metadata client.
type metadataAPI struct {
	client metadata.Interface
	kinds  *kinds
	// patience is how long the objects of one added kind may take to list.
	patience time.Duration
}

func (a *metadataAPI) resource(id graph.Identity) (metadata.ResourceInterface, error) {
	r, ok := a.kinds.find(id.APIVersion, id.Kind)
	if !ok {
		return nil, fmt.Errorf("kind %s of %s is not served", id.Kind, id.APIVersion)
	}
	// Objects of servers of others, and references that anybody writes, may have names that
	// are paths; the client would follow them to objects of other kinds. None has such a name.
	for _, name := range []string{id.Namespace, id.Name} {
		if len(restclient.IsValidPathSegmentName(name)) > 0 {
			return nil, apierrors.NewNotFound(r.GVR.GroupResource(), name)
		}
	}
	if r.Namespaced {
		return a.client.Resource(r.GVR).Namespace(id.Namespace), nil
	}
	return a.client.Resource(r.GVR), nil
}

// served keeps an answer that there is no such path from being taken for one that an object is gone, though both are
// NotFound: that a version of a kind is not served any more says nothing of its objects.
func served(id graph.Identity, err error) error {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("kind %s of %s is not served now: %s", id.Kind, id.APIVersion, err.Error())
	}
	return err
}

// Get implements api.
func (a *metadataAPI) Get(ctx context.Context, id graph.Identity) (*metav1.PartialObjectMetadata, error) {
	r, err := a.resource(id)
	if err != nil {
		return nil, err
	}
	object, err := r.Get(ctx, id.Name, metav1.GetOptions{})
	return object, served(id, err)
}

// Delete implements api.
func (a *metadataAPI) Delete(ctx context.Context, id graph.Identity, options metav1.DeleteOptions) error {
	r, err := a.resource(id)
	if err != nil {
		return err
	}
	return served(id, r.Delete(ctx, id.Name, options))
}

// Patch implements api.
func (a *metadataAPI) Patch(
	ctx context.Context, id graph.Identity, patchType types.PatchType, body []byte,
) (*metav1.PartialObjectMetadata, error) {
	r, err := a.resource(id)
	if err != nil {
		return nil, err
	}
	object, err := r.Patch(ctx, id.Name, patchType, body, metav1.PatchOptions{})
	return object, served(id, err)
}

// patienceWithLists is how long the objects of one added kind may take to list: as long as a server lets one request
// take.
const patienceWithLists = time.Minute

// Dependents implements api. It asks for every kind; what an added kind, whose server
// may be down for long or never come to an end, does not answer is left out.
func (a *metadataAPI) Dependents(ctx context.Context, owner graph.Identity) (found []graph.Identity, err error) {
	var mu sync.Mutex // guards found
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelLists)
	for _, r := range a.kinds.watched() {
		if owner.Namespace != "" && !r.Namespaced {
			continue // an owner in a namespace has its dependents there
		}
		group.Go(func() error {
			some, err := a.dependentsOf(ctx, r, owner)
			mu.Lock()
			defer mu.Unlock()
			found = append(found, some...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return found, nil
}

// parallelLists is the number of kinds listed at a time.
const parallelLists = 4

func (a *metadataAPI) dependentsOf(ctx context.Context, r Resource,
	owner graph.Identity) (found []graph.Identity, err error) {
	builtin, bounded, apiVersion := a.kinds.isBuiltin(r), ctx, r.GVK.GroupVersion().String()
	if !builtin {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, a.patience)
		defer cancel()
	}
	err = eachObject(
		bounded, a.client.Resource(r.GVR).Namespace(owner.Namespace),
		func(object *metav1.PartialObjectMetadata) {
			for _, ref := range object.OwnerReferences {
				if ref.UID == owner.UID {
					found = append(found, graph.ObjectOf(apiVersion, r.GVK.Kind, object).Identity)
				}
			}
		},
	)
	switch {
	case err == nil || apierrors.IsNotFound(err): // or the kind is gone
	case builtin || ctx.Err() != nil:
		return nil, fmt.Errorf("list %s: %w", r.GVR.GroupResource(), err)
	default:
		klog.FromContext(ctx).Error(
			err, "Could not look for what an object that goes leaves behind", "owner", owner, "resource", r.GVR,
		)
	}
	return found, nil
}

func eachObject(ctx context.Context, r metadata.ResourceInterface, do func(*metav1.PartialObjectMetadata)) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.List(ctx, options)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		do(object.(*metav1.PartialObjectMetadata))
		return nil
	})
}
