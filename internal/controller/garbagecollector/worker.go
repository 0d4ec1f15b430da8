package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

var (
	// errUnseen means that an owner exists but no informer has shown it yet. It
	// is looked at again, since no event will come if it vanishes unseen.
	errUnseen = errors.New("the owner exists but was not seen yet")
	// errContended means that the object changed at every attempt.
	errContended = errors.New("the object keeps changing")
)

// maxSteps bounds the decisions on one object per attempt. One needs verify, then
// delete, and after a conflict both again.
const maxSteps = 6

func (c *Controller) work(ctx context.Context, q queue, do func(context.Context, types.UID) error) {
	for {
		uid, shutdown := q.Get()
		if shutdown {
			return
		}
		err := do(ctx, uid)
		switch {
		case err == nil || ctx.Err() != nil:
			q.Forget(uid)
		case errors.Is(err, errUnseen) || errors.Is(err, errContended):
			q.AddRateLimited(uid)
		default:
			utilruntime.HandleErrorWithContext(ctx, err, "Garbage collection will be retried", "uid", uid)
			q.AddRateLimited(uid)
		}
		q.Done(uid)
	}
}

// attemptToDelete decides about one object and does it, until nothing is left to do.
func (c *Controller) attemptToDelete(ctx context.Context, uid types.UID) error {
	decision := c.decide(uid)
	for range maxSteps {
		klog.FromContext(ctx).V(4).Info(
			"Decided", "object", decision.Object.Identity, "action", decision.Action, "reason", decision.Reason,
		)
		if decision.Action == graph.Keep {
			return nil
		}
		if decision.Action == graph.Verify {
			if err := c.verify(ctx, decision.Verify); err != nil {
				return err
			}
			decision = c.decide(uid)
			continue
		}
		err := c.apply(ctx, decision)
		switch {
		case err == nil:
			return nil
		case apierrors.IsNotFound(err):
			c.confirmAbsent(decision.Object.Identity)
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("%s %s: %w", decision.Action, decision.Object.Identity, err)
		}
		// The graph's state of the object was old, or the name has a new bearer.
		live, found, err := c.live(ctx, decision.Object.Identity)
		if err != nil || !found {
			return err
		}
		decision = c.decideLive(live)
	}
	return errContended
}

// verify reads owners live and tells the graph which do not exist.
func (c *Controller) verify(ctx context.Context, owners []graph.Identity) error {
	unseen := false
	for _, id := range owners {
		_, found, err := c.live(ctx, id)
		if err != nil {
			return err
		}
		unseen = unseen || found
	}
	if unseen {
		return errUnseen
	}
	return nil
}

// live reads an object from the API server. If it is not there any more, or its
// name has a new bearer, the graph is told.
func (c *Controller) live(ctx context.Context, id graph.Identity) (graph.Object, bool, error) {
	object, err := c.api.Get(ctx, id)
	if err != nil && !apierrors.IsNotFound(err) {
		return graph.Object{}, false, fmt.Errorf("read %s: %w", id, err)
	}
	if err != nil || object.UID != id.UID {
		c.confirmAbsent(id)
		return graph.Object{}, false, nil
	}
	return graph.ObjectOf(id.APIVersion, id.Kind, object), true, nil
}

// attemptToOrphan releases all dependents of an object that is deleted with the
// policy Orphan, then lets the object go.
func (c *Controller) attemptToOrphan(ctx context.Context, uid types.UID) error {
	c.mu.Lock()
	owner, ok := c.graph.Find(uid)
	c.mu.Unlock()
	if !ok || !owner.Deleting || !owner.Orphan {
		return nil
	}
	released := map[types.UID]bool{}
	release := func(dependents []graph.Identity) error {
		pending := slices.DeleteFunc(dependents, func(id graph.Identity) bool { return released[id.UID] })
		if err := c.releaseAll(ctx, uid, pending); err != nil {
			return fmt.Errorf("orphan the dependents of %s: %w", owner.Identity, err)
		}
		for _, id := range pending {
			released[id.UID] = true
		}
		return nil
	}
	if err := release(c.dependents(uid)); err != nil {
		return err
	}
	// What was made a moment before the owner was deleted may not have been seen yet, and
	// would be deleted as soon as the owner is gone.
	unseen, err := c.api.Dependents(ctx, owner.Identity)
	if err != nil {
		return fmt.Errorf("find the dependents of %s: %w", owner.Identity, err)
	}
	if err := release(unseen); err != nil {
		return err
	}
	err = c.removeFinalizer(ctx, owner.Identity, metav1.FinalizerOrphanDependents)
	if err != nil {
		return fmt.Errorf("let %s go after orphaning %d dependents: %w", owner.Identity, len(released), err)
	}
	return nil
}

func (c *Controller) dependents(owner types.UID) []graph.Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.graph.Dependents(owner)
}

func (c *Controller) decide(uid types.UID) graph.Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.graph.Decide(uid)
}

func (c *Controller) decideLive(o graph.Object) graph.Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.graph.DecideLive(o)
}

func (c *Controller) confirmAbsent(id graph.Identity) {
	c.update(func(g *graph.Graph) { g.ConfirmAbsent(id) })
}
