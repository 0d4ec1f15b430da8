// Package describe tells of objects and of their changes, for people; pure.
package describe

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

// Event tells of a change in one line. What a Secret holds is not in it.
func Event(e history.Event) string {
	var text []string
	switch o := e.Object.(type) {
	case *corev1.Pod:
		text = podOf(o)
	case *v1alpha1.DaemonSetVariant:
		text = append(text, "variant "+o.Name, wish.Of(o))
	case *corev1.ConfigMap, *corev1.Secret:
		text = append(text, revision.RefOf(o).String(), revision.Value(o))
	case *appsv1.DaemonSet:
		text = append(text, "DaemonSet "+o.Name, "template "+o.Spec.Template.Annotations[history.TemplateMark],
			fmt.Sprintf("generation %d, observed %d", o.Generation, o.Status.ObservedGeneration), Strategy(o))
	case *v1alpha1.RolloutPolicy:
		text = append(text, "policy "+o.Name, wish.Of(o))
	case *v1alpha1.DaemonSetRollout:
		s := &o.Status
		text = append(text, "rollout "+o.Name, wish.Of(o), fmt.Sprintf(
			"%s stable=%s target=%s (%.15s) of=%d step=%q failed=%v: %s", s.Phase, s.StableRevision, s.TargetRevision,
			s.TargetDigest, s.DaemonSetGeneration, s.Step, failedOf(o), s.Message))
		text = append(text, imagesOf(o)...)
	case *appsv1.ControllerRevision:
		text = append(text, "revision "+o.Name, fmt.Sprintf("number %d", o.Revision))
	default:
		text = append(text, e.Object.GetName())
	}
	if e.Object.GetDeletionTimestamp() != nil {
		text = append(text, "terminating")
	}
	if e.Deleted {
		text = append(text, "GONE")
	}
	return strings.Join(text, ", ")
}

func podOf(o *corev1.Pod) (text []string) {
	text = append(
		text, "pod "+o.Name, "template "+o.Annotations[history.TemplateMark], "node "+o.Spec.NodeName,
		string(o.Status.Phase),
	)
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodReady {
			text = append(text, "ready "+string(c.Status))
		}
	}
	if id := revision.ContentOf(o); id != "" {
		text = append(text, "content "+id)
	}
	if id := revision.VariantsOf(o.Labels[revision.Label]); id != "" {
		text = append(text, "variants "+id)
	}
	if len(o.Spec.Containers[0].Resources.Requests) > 0 {
		text = append(text, molds.OfPod(o).String())
	}
	return text
}

// imagesOf tells which digests a rollout knows, by the first letters of each.
func imagesOf(r *v1alpha1.DaemonSetRollout) (out []string) {
	if r.Status.Images == nil {
		return nil
	}
	for _, t := range r.Status.Images.Templates {
		for _, i := range t.Images {
			out = append(out, fmt.Sprintf("%s of %s is %.14q", i.Image, t.Template, i.Digest))
		}
	}
	return out
}

func failedOf(r *v1alpha1.DaemonSetRollout) (out []string) {
	for _, f := range r.Status.FailedRevisions {
		out = append(out, f.Revision)
	}
	return out
}

// Strategy tells how a DaemonSet is updated.
func Strategy(d *appsv1.DaemonSet) string {
	if r := d.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return fmt.Sprintf("maxUnavailable %s, maxSurge %s", r.MaxUnavailable, r.MaxSurge)
	}
	return string(d.Spec.UpdateStrategy.Type)
}

// About tells the history of some objects, and of the rollouts of DaemonSets among them, one line for each change. When
// says of a revision of the database at what time it was seen.
func About(events []history.Event, objects []types.UID, when func(revision int64) string) (out []string) {
	sets := map[string]bool{}
	for _, e := range events {
		if _, is := e.Object.(*appsv1.DaemonSet); is && slices.Contains(objects, e.Object.GetUID()) {
			sets[e.Object.GetName()] = true
		}
	}
	for _, e := range events {
		_, rollout := e.Object.(*v1alpha1.DaemonSetRollout)
		if slices.Contains(objects, e.Object.GetUID()) || rollout && sets[e.Object.GetName()] {
			out = append(out, fmt.Sprintf("%s  revision %d: %s", when(e.Revision), e.Revision, Event(e)))
		}
	}
	return out
}
