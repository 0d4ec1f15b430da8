package diagnosis

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/change/pinning"
)

// TestPodsThatWaitBehindTheGate in vain are named, with whom they are of.
func TestPodsThatWaitBehindTheGate(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	gate := []corev1.PodSchedulingGate{{Name: pinning.Gate}}
	set := func(uid string, gates []corev1.PodSchedulingGate) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set-" + uid, UID: types.UID(uid)},
			Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{SchedulingGates: gates}}}}
	}
	waiting := func(name, kind, owner string, for_ time.Duration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-for_))},
			Spec: corev1.PodSpec{SchedulingGates: gate}}
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "set-" + owner, UID: types.UID(owner), Controller: ptr.To(true)}}
		}
		return p
	}
	other := &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: "ns", Name: "set-1"}, Message: "somebody else does"}
	for name, c := range map[string]struct {
		in   Cluster
		want []string
	}{
		"none":                  {Cluster{DaemonSets: []*appsv1.DaemonSet{set("1", nil)}}, nil},
		"not for long":          {Cluster{Gated: []*corev1.Pod{waiting("a", "DaemonSet", "1", 14*time.Minute)}}, nil},
		"for long":              {Cluster{Gated: []*corev1.Pod{waiting("a", "DaemonSet", "1", time.Hour), waiting("b", "DaemonSet", "1", time.Hour)}}, []string{"pods of DaemonSet set-1 in ns: 2 pods wait"}},
		"of nobody":             {Cluster{Gated: []*corev1.Pod{waiting("a", "", "", time.Hour)}}, []string{"pods in ns: 1 pod waits"}},
		"a template has it":     {Cluster{DaemonSets: []*appsv1.DaemonSet{set("1", gate)}, Gated: []*corev1.Pod{waiting("a", "DaemonSet", "1", time.Hour)}}, []string{"daemonset/set-1 in ns: its template has the scheduling gate"}},
		"somebody else puts it": {Cluster{GatesOfOthers: []*corev1.Event{other}}, []string{"daemonset/set-1 in ns: somebody else does"}},
	} {
		c.in.Now, c.in.Kubectl = now, "kubectl"
		f := findings{check: "gates"}
		gated(&f, &c.in)
		if len(f.all) != len(c.want) {
			t.Errorf("%s: it finds %+v", name, f.all)
			continue
		}
		for i, want := range c.want {
			if got := f.all[i].Subject + ": " + f.all[i].Message; !strings.HasPrefix(got, want) {
				t.Errorf("%s: it says %q, want %q", name, got, want)
			}
		}
	}
}
