// Package plan decides how many pods a HorizontalPodAutoscaler wants: from what metrics say, by how much and how
// soon the number may change, and what the autoscaler's status tells of that. It is pure.
package plan

import (
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Resync is how long an autoscaler waits before it looks again.
const Resync = 15 * time.Second

// Scale is what the target says of its number of pods.
type Scale struct {
	// Wanted is spec.replicas, Observed status.replicas.
	Wanted, Observed int32
	// Selector chooses the target's pods.
	Selector string
}

// PodValue is what a metric says of one pod.
type PodValue struct {
	// Milli is the value in thousandths of the metric's unit.
	Milli int64
	// Time is when the value was taken, and Window the time over which.
	Time   time.Time
	Window time.Duration
}

// Reading is what a metric said, or why it said nothing.
type Reading struct {
	// Pods are values by the name of the pod, of metrics that have one for each.
	Pods map[string]PodValue
	// Milli is the value of the others, in thousandths of the metric's unit.
	Milli int64
	Err   error
	// Took is how long it took to say so.
	Took time.Duration
}

// Sample is a number of pods that metrics asked for.
type Sample struct {
	Time     time.Time
	Replicas int32
}

// Change is by how many pods the autoscaler changed its target; always more than none.
type Change struct {
	Time     time.Time
	Replicas int32
}

// History is what an autoscaler remembers. Its lists are never changed in place.
type History struct {
	Wishes   []Sample
	Up, Down []Change
}

// Input is everything that a decision depends on. Nothing of it is changed.
type Input struct {
	Autoscaler *autoscalingv2.HorizontalPodAutoscaler
	Scale      Scale
	// Pods are those that the selector chooses.
	Pods []corev1.Pod
	// SelectorErr is why it can choose none.
	SelectorErr *Failure
	// Readings are those of the metrics, in their order.
	Readings []Reading
	// Past is the history that the decision before this one left.
	Past History
	Now  time.Time
}

// Event is what users are told.
type Event struct {
	Type, Reason, Message string
}

// Ambiguous is the reason of a failure: pods that several autoscalers count as their own.
const Ambiguous = "AmbiguousSelector"

// Failure is an error with the reason under which users are told of it.
type Failure struct {
	Reason string
	Err    error
}

// Result is what is to be done.
type Result struct {
	// Replicas is the number of pods that the target should have.
	Replicas int32
	// Rescale says that it has another one, and Why what that is good for.
	Rescale bool
	Why     string
	Status  autoscalingv2.HorizontalPodAutoscalerStatus
	History History
	Events  []Event
	// Err is what is wrong with metrics. Others may have been enough.
	Err error
	// Said is what each metric that was asked said.
	Said []Said
}

// Said is how many pods one metric asked for, or why it did not.
type Said struct {
	Type     autoscalingv2.MetricSourceType
	Replicas int32
	Err      error
	Took     time.Duration
}

// ErrSpec is in the errors that only somebody mends who changes the autoscaler or its target.
var ErrSpec = errors.New("the autoscaler or its target must be changed")

// specError is such an error; its text says enough.
type specError struct{ error }

// Is implements the interface that errors.Is asks for.
func (specError) Is(target error) bool { return target == ErrSpec }

// Unwrap implements the interface that errors.As asks for.
func (e specError) Unwrap() error { return e.error }

// OfSpec makes an error one that only a change of the autoscaler or its target mends.
func OfSpec(err error) error { return specError{err} }

// NeedsMetrics reports whether metrics have a say: not while the target is switched off, or out of its bounds.
func NeedsMetrics(a *autoscalingv2.HorizontalPodAutoscaler, s Scale) bool {
	return s.Wanted >= least(a) && s.Wanted <= a.Spec.MaxReplicas
}

func least(a *autoscalingv2.HorizontalPodAutoscaler) int32 { return ptr.Deref(a.Spec.MinReplicas, 1) }

// decision is a result that is being made.
type decision struct {
	Input
	Result
	// blind says that no metric is to be trusted, so that the status goes on to say what was wanted before.
	blind bool
}

// Decide says how many pods there should be.
func Decide(in Input) Result {
	d := &decision{Input: in, Result: Result{History: in.Past, Status: begun(in.Autoscaler)}}
	d.Replicas = in.Scale.Wanted
	if len(d.History.Wishes) == 0 {
		d.History.Wishes = []Sample{{in.Now, in.Scale.Wanted}}
	}
	d.condition(autoscalingv2.AbleToScale, true, "SucceededGetScale",
		"the HPA controller was able to get the target's current scale")
	lowest, highest := least(in.Autoscaler), in.Autoscaler.Spec.MaxReplicas
	switch now := in.Scale.Wanted; {
	case now == 0 && lowest != 0:
		d.condition(autoscalingv2.ScalingActive, false, "ScalingDisabled",
			"scaling is disabled since the replica count of the target is zero")
	case now > highest:
		d.Replicas, d.Why = highest, "Current number of replicas above Spec.MaxReplicas"
	case now < lowest:
		d.Replicas, d.Why = lowest, "Current number of replicas below Spec.MinReplicas"
	default:
		d.follow()
	}
	d.Rescale = d.Replicas != in.Scale.Wanted
	d.Status.CurrentReplicas = in.Scale.Wanted
	if !d.blind {
		d.Status.DesiredReplicas = d.Replicas
	}
	return d.Result
}

// follow lets the metrics decide.
func (d *decision) follow() {
	wish, metric, ok := d.wish()
	d.blind = !ok
	if d.blind {
		return
	}
	switch {
	case wish > d.Scale.Wanted:
		d.Why = metric + " above target"
	case wish < d.Scale.Wanted:
		d.Why = "All metrics below target"
	}
	d.Replicas = d.bounded(wish)
}

// begun is the status as the decision finds it.
func begun(a *autoscalingv2.HorizontalPodAutoscaler) autoscalingv2.HorizontalPodAutoscalerStatus {
	out := *a.Status.DeepCopy()
	out.ObservedGeneration = ptr.To(a.Generation)
	return out
}

// Unreachable is the result if the scale of the target cannot be read.
func Unreachable(a *autoscalingv2.HorizontalPodAutoscaler, h History, err error, now time.Time) Result {
	d := &decision{Input: Input{Autoscaler: a, Now: now}, Result: Result{History: h, Status: begun(a), Err: err}}
	d.event(corev1.EventTypeWarning, "FailedGetScale", err.Error())
	d.condition(autoscalingv2.AbleToScale, false, "FailedGetScale",
		fmt.Sprintf("the HPA controller was unable to get the target's current scale: %v", err))
	return d.Result
}

// Rescaled is the result after the target took the number of pods that it should have.
func Rescaled(in Input, r Result) Result {
	d := &decision{Input: in, Result: r}
	d.event(corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", r.Replicas, r.Why))
	d.condition(autoscalingv2.AbleToScale, true, "SucceededRescale",
		fmt.Sprintf("the HPA controller was able to update the target scale to %d", r.Replicas))
	d.Status.LastScaleTime = ptr.To(stamp(in.Now))
	d.remember(r.Replicas - in.Scale.Wanted)
	return d.Result
}

// NotRescaled is the result after it did not.
func NotRescaled(in Input, r Result, err error) Result {
	d := &decision{Input: in, Result: r}
	d.event(corev1.EventTypeWarning, "FailedRescale",
		fmt.Sprintf("New size: %d; reason: %s; error: %v", r.Replicas, r.Why, err))
	d.condition(autoscalingv2.AbleToScale, false, "FailedUpdateScale",
		fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err))
	d.Status.DesiredReplicas = in.Autoscaler.Status.DesiredReplicas
	d.Rescale, d.Err = false, err
	return d.Result
}
