package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/podtemplate"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// world is a Deployment with its sets. What a plan says is done to it at once;
// what becomes of the pods is for the test to say.
type world struct {
	d    *appsv1.Deployment
	sets []*appsv1.ReplicaSet
	pods []*corev1.Pod
	now  time.Time
	made int
	// names are what the scripts call the sets.
	names map[string]string
}

func newWorld() *world {
	labels := map[string]string{"app": "web"}
	return &world{now: noon, names: map[string]string{}, d: &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "web", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy:             appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{}},
			RevisionHistoryLimit: ptr.To[int32](10), ProgressDeadlineSeconds: ptr.To[int32](600),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}},
		},
	}}
}

func (w *world) input() Input {
	return Input{Deployment: w.d, Sets: slices.Clone(w.sets), Pods: w.pods, Now: w.now}
}

// decide asks for a plan and does what it says.
func (w *world) decide() Plan {
	p := Decide(w.input())
	if p.Create != nil {
		w.made++
		p.Create.UID, p.Create.Generation = types.UID(fmt.Sprint("set-", w.made)), 1
		p.Create.CreationTimestamp = metav1.NewTime(w.now)
		w.sets = append(w.sets, p.Create)
	}
	for _, u := range p.Update {
		for i := range w.sets {
			if w.sets[i] == u.Before {
				if *u.Set.Spec.Replicas != *u.Before.Spec.Replicas {
					u.Set.Generation++
				}
				w.sets[i] = u.Set
			}
		}
	}
	for _, gone := range p.Delete {
		for i := range w.sets {
			if w.sets[i] == gone {
				w.sets = append(w.sets[:i:i], w.sets[i+1:]...)
				break
			}
		}
	}
	if p.Changed {
		w.d.Status = p.Status
		if p.Revision != "" {
			annotations := map[string]string{}
			maps.Copy(annotations, w.d.Annotations)
			annotations[RevisionAnnotation] = p.Revision
			w.d.Annotations = annotations
		}
	}
	return p
}

// image is the version that a set runs.
func image(s *appsv1.ReplicaSet) string { return s.Spec.Template.Spec.Containers[0].Image }

func (w *world) set(version string) *appsv1.ReplicaSet {
	for _, s := range w.sets {
		if image(s) == version {
			return s
		}
	}
	return nil
}

// report is what the ReplicaSet controller does: pods are made and deleted until
// there are as many as wanted; then so many of them are ready and available.
func (w *world) report(version string, serving int32) {
	for i, s := range w.sets {
		if image(s) != version {
			continue
		}
		next := s.DeepCopy()
		serving = min(serving, *s.Spec.Replicas)
		next.Status = appsv1.ReplicaSetStatus{
			Replicas: *s.Spec.Replicas, FullyLabeledReplicas: *s.Spec.Replicas, ReadyReplicas: serving, AvailableReplicas: serving,
			ObservedGeneration: s.Generation, TerminatingReplicas: new(int32), Conditions: s.Status.Conditions,
		}
		w.sets[i] = next
	}
}

// readable names sets by their version instead of their hash.
func (w *world) readable(text string) string {
	hash := podtemplate.Hash(&w.d.Spec.Template, w.d.Status.CollisionCount)
	w.names["web-"+hash] = "web-" + w.d.Spec.Template.Spec.Containers[0].Image
	for name, called := range w.names {
		text = strings.ReplaceAll(text, name, called)
	}
	return text
}

func total32(sets []*appsv1.ReplicaSet) (n int32) {
	for _, s := range sets {
		n += *s.Spec.Replicas
	}
	return n
}
