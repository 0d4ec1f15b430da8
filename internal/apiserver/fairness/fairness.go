// Package fairness keeps the configuration of priority and fairness that every cluster
// has: what nodes, control loops and administrators need comes before what others ask
// for, and these do not take it from each other.
package fairness

import (
	"context"
	"fmt"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/fairness/plan"
)

// every is how often the configuration is looked at.
const every = time.Minute

// Start brings the configuration up to date, and then keeps it so in the background
// until ctx ends.
func Start(ctx context.Context, client kubernetes.Interface) error {
	if err := Ensure(ctx, client); err != nil {
		return err
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(every):
			}
			if err := Ensure(ctx, client); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(
					err, "Could not bring the configuration of priority and fairness up to date; it is tried again",
				)
			}
		}
	}()
	return nil
}

// Ensure brings the configuration up to date. Several servers may do so at a time.
func Ensure(ctx context.Context, client kubernetes.Interface) error {
	api := client.FlowcontrolV1()
	levels := kind[*flowcontrolv1.PriorityLevelConfiguration]{
		name: "priority level", client: api.PriorityLevelConfigurations(),
		list: func(ctx context.Context) (out []*flowcontrolv1.PriorityLevelConfiguration, err error) {
			all, err := api.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
			for i := range all.Items {
				out = append(out, &all.Items[i])
			}
			return out, err
		},
		same: func(a, b *flowcontrolv1.PriorityLevelConfiguration) bool {
			// Of the exempt level the user may change what it lends.
			if a.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
				return a.Spec.Type == b.Spec.Type && a.Spec.Limited == nil
			}
			return apiequality.Semantic.DeepEqual(a.Spec, b.Spec)
		},
		copySpec: func(to, from *flowcontrolv1.PriorityLevelConfiguration) { to.Spec = *from.Spec.DeepCopy() },
		clone: func(o *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfiguration {
			return o.DeepCopy()
		},
	}
	schemas := kind[*flowcontrolv1.FlowSchema]{
		name: "flow schema", client: api.FlowSchemas(),
		list: func(ctx context.Context) (out []*flowcontrolv1.FlowSchema, err error) {
			all, err := api.FlowSchemas().List(ctx, metav1.ListOptions{})
			for i := range all.Items {
				out = append(out, &all.Items[i])
			}
			return out, err
		},
		same:     func(a, b *flowcontrolv1.FlowSchema) bool { return apiequality.Semantic.DeepEqual(a.Spec, b.Spec) },
		copySpec: func(to, from *flowcontrolv1.FlowSchema) { to.Spec = *from.Spec.DeepCopy() },
		clone:    func(o *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchema { return o.DeepCopy() },
	}
	suggested := suggestedLevels()
	// Schemas name levels, so levels come first, and go last.
	if err := levels.keep(ctx, bootstrap.MandatoryPriorityLevelConfigurations, suggested); err != nil {
		return err
	}
	if err := schemas.keep(ctx, bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas); err != nil {
		return err
	}
	if err := schemas.prune(ctx, bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas); err != nil {
		return err
	}
	return levels.prune(ctx, bootstrap.MandatoryPriorityLevelConfigurations, suggested)
}

// nodesBorrow is how many seats nodes may borrow at most, as a percentage of those that are theirs. The control loops
// have the same cores: when many nodes join at a time, or report, each step of a loop waits for all of their requests
// that run, and for none that waits for a seat.
const nodesBorrow = 200

// suggestedLevels are Kubernetes' own, but for what nodes may borrow.
func suggestedLevels() (out []*flowcontrolv1.PriorityLevelConfiguration) {
	for _, level := range bootstrap.SuggestedPriorityLevelConfigurations {
		if level.Name == bootstrap.SuggestedPriorityLevelConfigurationSystem.Name {
			level = level.DeepCopy()
			level.Spec.Limited.BorrowingLimitPercent = new(int32(nodesBorrow))
		}
		out = append(out, level)
	}
	return out
}

// object is one of the two kinds.
type object interface {
	metav1.Object
	runtime.Object
}

// writer is the part of the two clients that is used.
type writer[T object] interface {
	Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// kind is how one of the two kinds is handled.
type kind[T object] struct {
	name     string
	client   writer[T]
	list     func(context.Context) ([]T, error)
	same     func(a, b T) bool
	copySpec func(to, from T)
	clone    func(T) T
}

func (k kind[T]) byName(ctx context.Context) (map[string]T, error) {
	all, err := k.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list every %s: %w", k.name, err)
	}
	out := make(map[string]T, len(all))
	for _, o := range all {
		out[o.GetName()] = o
	}
	return out, nil
}

func (k kind[T]) keep(ctx context.Context, mandatory, suggested []T) error {
	current, err := k.byName(ctx)
	if err != nil {
		return err
	}
	for i, want := range append(append([]T{}, mandatory...), suggested...) {
		var step plan.Step
		old, exists := current[want.GetName()]
		if exists {
			step = plan.Wanted(old, i < len(mandatory), k.same(old, want))
		} else {
			step = plan.Wanted(nil, i < len(mandatory), false)
		}
		err := k.do(ctx, step, old, want)
		// Another server did the same, or the user something else: next time.
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s the %s %s: %w", step, k.name, want.GetName(), err)
		}
	}
	return nil
}

func (k kind[T]) do(ctx context.Context, step plan.Step, old, want T) error {
	switch step {
	case plan.Create:
		fresh := k.clone(want)
		mark(fresh, "true")
		_, err := k.client.Create(ctx, fresh, metav1.CreateOptions{})
		return err
	case plan.Update:
		changed := k.clone(old)
		if !k.same(old, want) {
			k.copySpec(changed, want)
		}
		mark(changed, "true")
		_, err := k.client.Update(ctx, changed, metav1.UpdateOptions{})
		return err
	case plan.Release:
		changed := k.clone(old)
		mark(changed, "false")
		_, err := k.client.Update(ctx, changed, metav1.UpdateOptions{})
		return err
	}
	return nil
}

func (k kind[T]) prune(ctx context.Context, mandatory, suggested []T) error {
	current, err := k.byName(ctx)
	if err != nil {
		return err
	}
	for _, want := range append(append([]T{}, mandatory...), suggested...) {
		delete(current, want.GetName())
	}
	for name, o := range current {
		if plan.Unwanted(o) != plan.Delete {
			continue
		}
		version := o.GetResourceVersion()
		err := k.client.Delete(ctx, name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{ResourceVersion: &version},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete the %s %s: %w", k.name, name, err)
		}
	}
	return nil
}

func mark(o metav1.Object, value string) {
	annotations := map[string]string{}
	for k, v := range o.GetAnnotations() {
		annotations[k] = v
	}
	annotations[flowcontrolv1.AutoUpdateAnnotationKey] = value
	o.SetAnnotations(annotations)
}
