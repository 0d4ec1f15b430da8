package horizontalpodautoscaler

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/horizontalpodautoscaler/plan"
)

// Target is the scale of a workload as it was read, so that a change of it fails if it has changed since.
type Target struct {
	resource schema.GroupVersionResource
	scale    *autoscalingv1.Scale
}

// Writer is everything that the controller writes, with what it reads for that.
type Writer interface {
	// Scale reads the scale of an autoscaler's target.
	Scale(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) (Target, plan.Scale, error)
	// Rescale gives a target that many pods.
	Rescale(ctx context.Context, t Target, replicas int32) error
	// UpdateStatus fails with a conflict if the autoscaler has changed since it was read.
	UpdateStatus(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) error
}

// rescale gives the target its pods. A failure is for the status to tell; the next round tries again.
func (r *reconciler) rescale(ctx context.Context, target Target, in plan.Input, result plan.Result) plan.Result {
	err := r.writer.Rescale(ctx, target, result.Replicas)
	if err != nil {
		return plan.NotRescaled(in, result, err)
	}
	klog.FromContext(ctx).V(3).Info("Changed the number of pods", "autoscaler", klog.KObj(in.Autoscaler),
		"from", in.Scale.Wanted, "to", result.Replicas, "reason", result.Why)
	return plan.Rescaled(in, result)
}

// apply writes the status, if it is news, and tells users what they should know.
func (r *reconciler) apply(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler, result plan.Result) error {
	if r.events != nil {
		for _, e := range result.Events {
			r.events.Eventf(a, e.Type, e.Reason, "%s", e.Message)
		}
	}
	if apiequality.Semantic.DeepEqual(a.Status, result.Status) {
		return nil
	}
	// A copy of the struct is enough to set another status: the autoscaler is shared.
	next := *a
	next.Status = result.Status
	err := r.writer.UpdateStatus(ctx, &next)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the next round knows better
	}
	if err != nil {
		return fmt.Errorf("update the status of autoscaler %s: %w", klog.KObj(a), err)
	}
	return nil
}

// clientWriter is the Writer over client-go.
type clientWriter struct {
	client  kubernetes.Interface
	objects dynamic.Interface
	mapper  meta.RESTMapper
}

// NewWriter makes a Writer. The mapper knows all kinds that may be scaled, also those that are added later.
func NewWriter(client kubernetes.Interface, objects dynamic.Interface, mapper meta.RESTMapper) Writer {
	return clientWriter{client, objects, mapper}
}

// Scale implements Writer.
func (w clientWriter) Scale(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) (Target, plan.Scale, error) {
	ref := a.Spec.ScaleTargetRef
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return Target{}, plan.Scale{}, plan.OfSpec(fmt.Errorf("invalid API version in scale target reference: %w",
			err))
	}
	mapping, err := w.mapper.RESTMapping(schema.GroupKind{Group: version.Group, Kind: ref.Kind})
	if err != nil {
		return Target{}, plan.Scale{}, plan.OfSpec(fmt.Errorf("unable to determine resource for scale target "+
			"reference: %w", err))
	}
	t := Target{resource: mapping.Resource, scale: &autoscalingv1.Scale{}}
	object, err := w.objects.Resource(t.resource).Namespace(a.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}, "scale")
	if err != nil {
		return Target{}, plan.Scale{}, fmt.Errorf("read the scale of %s %s: %w", ref.Kind, ref.Name, err)
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, t.scale)
	if err != nil {
		return Target{}, plan.Scale{}, fmt.Errorf("read the scale of %s %s: %w", ref.Kind, ref.Name, err)
	}
	return t, plan.Scale{Wanted: t.scale.Spec.Replicas, Observed: t.scale.Status.Replicas,
		Selector: t.scale.Status.Selector}, nil
}

// Rescale implements Writer.
func (w clientWriter) Rescale(ctx context.Context, t Target, replicas int32) error {
	next := t.scale.DeepCopy()
	next.Spec.Replicas = replicas
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(next)
	if err != nil {
		return fmt.Errorf("write the scale of %s: %w", next.Name, err)
	}
	_, err = w.objects.Resource(t.resource).Namespace(next.Namespace).
		Update(ctx, &unstructured.Unstructured{Object: object}, metav1.UpdateOptions{}, "scale")
	if err != nil {
		return fmt.Errorf("write the scale of %s: %w", next.Name, err)
	}
	return nil
}

// UpdateStatus implements Writer.
func (w clientWriter) UpdateStatus(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) error {
	_, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(a.Namespace).UpdateStatus(ctx, a, metav1.UpdateOptions{})
	return err
}
