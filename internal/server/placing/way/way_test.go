package way

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// daemon is the pod of a daemon for a node, but for the edit.
func daemon(edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "ours", Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn,
				Values: []string{"n1"}}},
		}}},
	}}}}
	edit(p)
	return p
}

// TestWay: which pods are created with their node, and why the others are not.
func TestWay(t *testing.T) {
	terms := func(p *corev1.Pod) *[]corev1.NodeSelectorTerm {
		return &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	gated := func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }
	for name, c := range map[string]struct {
		edit    func(*corev1.Pod)
		watched bool
		want    Reason
	}{
		"an ordinary one": {func(*corev1.Pod) {}, false, ""},
		"with labels, too, to be met": {func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			(*terms(p))[0].MatchExpressions = []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}}
		}, false, ""},
		"with volumes": {func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/var/log"}}}}
		}, false, ""},
		"for another scheduler":           {func(p *corev1.Pod) { p.Spec.SchedulerName = "theirs" }, false, OtherScheduler},
		"for no scheduler":                {func(p *corev1.Pod) { p.Spec.SchedulerName = "" }, true, OtherScheduler},
		"gated":                           {gated, false, Gates},
		"gated, and bindings are watched": {gated, true, Gates},
		"with devices": {func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "d"}} }, false,
			Devices},
		"bindings are watched": {func(*corev1.Pod) {}, true, Watched},
		"without affinity":     {func(p *corev1.Pod) { p.Spec.Affinity = nil }, false, FreeChoice},
		"for one of two nodes": {func(p *corev1.Pod) { (*terms(p))[0].MatchFields[0].Values = []string{"n1", "n2"} }, false,
			FreeChoice},
		"for a node, or any": {func(p *corev1.Pod) {
			*terms(p) = append(*terms(p), corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "disk", Operator: corev1.NodeSelectorOpExists}}})
		}, false, FreeChoice},
		"for no node":             {func(p *corev1.Pod) { (*terms(p))[0].MatchFields[0].Values = nil }, false, FreeChoice},
		"for a node by two terms": {func(p *corev1.Pod) { *terms(p) = append(*terms(p), (*terms(p))[0]) }, false, ""},
	} {
		if got := Of(daemon(c.edit), "ours", c.watched); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
