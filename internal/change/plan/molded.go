package plan

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
	"github.com/everynode/everynode/internal/objects/pod"
)

// objects are what was read, and the pods as they are in a play.
type objects struct {
	variants.Objects
	molded map[types.UID]*corev1.Pod
}

// Pod implements variants.Objects.
func (o objects) Pod(uid types.UID) *corev1.Pod {
	if p := o.molded[uid]; p != nil {
		return p
	}
	return o.Objects.Pod(uid)
}

// sign has a pod say by what it was made.
func sign(made *corev1.Pod, revision string, mark *variant.Mark) {
	metav1.SetMetaDataLabel(&made.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, content.TemplateOf(revision))
	metav1.SetMetaDataLabel(&made.ObjectMeta, content.RevisionLabel, revision)
	delete(made.Annotations, variant.Annotation)
	if text, err := mark.Text(made.Name); err == nil && text != "" {
		metav1.SetMetaDataAnnotation(&made.ObjectMeta, variant.Annotation, text)
	}
}

// neverFits reports whether the node, which may be gone, is smaller than the pod asks for.
func neverFits(o *corev1.Pod, n *corev1.Node) bool {
	if n == nil {
		return false
	}
	for of, amount := range pod.Requests(o) {
		if has, is := n.Status.Allocatable[of]; is && amount.Cmp(has) > 0 {
			return true
		}
	}
	return false
}

// answered has a pod ask for something else than what its node said something of.
func answered(is *corev1.Pod) {
	is.Generation++
	is.Status.ObservedGeneration = is.Generation
	is.Status.Conditions = slices.DeleteFunc(is.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
	})
}

// infeasible has the node of a pod say that it can never give it what it asks for now.
func infeasible(is *corev1.Pod, now time.Time) {
	r := resizing.Record{Pod: is.Name, Generation: is.Generation, At: now}
	if text, err := r.Text(); err == nil {
		metav1.SetMetaDataAnnotation(&is.ObjectMeta, resizing.Annotation, text)
	}
	is.Status.Conditions = append(is.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
		Message: "the node is smaller",
	})
}

// givenSoon reports whether a pod is being given other amounts, and its node has not said that it lacks room for them.
func givenSoon(o *fact.Pod) bool { return o.Resized && o.Mounted.IsZero() && o.Unplaceable == "" }
