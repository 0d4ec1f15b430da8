package history

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
)

// container has the template's pods have one that requests so much memory.
func container(memory string) []corev1.Container {
	return []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse(memory)},
	}}}
}

// varied has a fleet with one daemon on each node, each with 64Mi.
func varied(change ...func(*appsv1.DaemonSet)) (*story, []*corev1.Pod) {
	s := began(append(change, func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Containers = container("64Mi") })...)
	var pods []*corev1.Pod
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		p := s.pod("on-"+node, node)
		p.Spec.Containers = container("64Mi")
		s.put(p)
		s.ready(p)
		pods = append(pods, p)
	}
	return s, pods
}

// variant has all nodes be of one variant, which gives 96Mi, or does something else by a patch.
func (s *story) variant(name string, generation int64, patch string) *v1alpha1.DaemonSetVariant {
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "v", Generation: generation}}
	v.Spec.Resources = map[string]v1alpha1.VariantResources{"main": {Requests: map[corev1.ResourceName]string{"memory": molds.Fixed}}}
	if patch != "" {
		v.Spec.Resources, v.Spec.Patch = nil, &runtime.RawExtension{Raw: []byte(patch)}
	}
	s.record.Events = append(s.record.Events, Event{Revision: s.next(), Object: v})
	s.record.Writes = append(s.record.Writes, Write{Kind: "DaemonSetVariant", Name: name, UID: "v", Wish: "any"})
	return v
}

// resized has a pod ask for other amounts; holding has its node say that it has them.
func (s *story) resized(p *corev1.Pod) {
	p.Generation++
	p.Spec.Containers = container("96Mi")
	s.put(p)
}

// refusing has the pod's node say that it can never have what it asked for, of a generation that it may have seen.
func (s *story) refusing(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
	})
	s.put(p)
}

func (s *story) holding(p *corev1.Pod) {
	p.Status.ObservedGeneration = p.Generation
	s.put(p)
}

func TestVariantsKeepToLimits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *story, pods []*corev1.Pod)
		want   string
	}{
		"a pod is deleted for another patch": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, molds.Level("one"))
			s.deleted(pods[0])
		}, ""},
		"two are": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, molds.Level("one"))
			s.deleted(pods[0])
			s.deleted(pods[1])
		}, Budget},
		"a pod is deleted and is as it should": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, "")
			s.resized(pods[0])
			s.holding(pods[0])
			s.holding(pods[0])
			s.deleted(pods[0])
		}, Reason},
		"a pod is deleted for one that the API refuses": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, molds.Refused)
			s.deleted(pods[0])
		}, Reason},
		"one is resized after the other": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, "")
			for _, p := range pods[:2] {
				s.resized(p)
				s.holding(p)
			}
		}, ""},
		"two are resized at once": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, "")
			s.resized(pods[0])
			s.resized(pods[1])
		}, Budget},
		"one can never have it, another is resized": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, "")
			s.resized(pods[0])
			s.refusing(pods[0])
			s.holding(pods[0])
			s.resized(pods[1])
		}, ""},
		"one could not have what it was to have before": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, "")
			s.resized(pods[0])
			s.refusing(pods[0])
			s.resized(pods[1])
		}, Budget},
		"one is resized, another deleted": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, "")
			s.resized(pods[0])
			s.deleted(pods[1])
		}, Budget},
		"one that was resized is deleted, another resized": {func(s *story, pods []*corev1.Pod) {
			s.variant("v", 1, "")
			s.resized(pods[0])
			s.record.Writes = append(s.record.Writes, Write{Kind: "Pod", UID: pods[0].UID, Delete: true, Acknowledged: true})
			s.gone(pods[0])
			s.resized(pods[1])
		}, ""},
	} {
		s, pods := varied()
		c.change(s, pods)
		var rules []string
		for _, v := range violations(s.record) {
			if v.Rule != Writes && !slices.Contains(rules, v.Rule) {
				rules = append(rules, v.Rule)
			}
		}
		if c.want == "" && len(rules) > 0 || c.want != "" && !slices.Equal(rules, []string{c.want}) {
			t.Errorf("%s: %q, want %q", name, rules, c.want)
		}
	}
}
