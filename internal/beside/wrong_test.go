package beside

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
)

// TestEachWrongPodIsToldOfOnce: also where as many were wrong before.
func TestEachWrongPodIsToldOfOnce(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"}}
	on := func(uid, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node}}
	}
	told := record.NewFakeRecorder(10)
	g := newGuest(t, fake.NewClientset())
	g.cfg.Recorder, g.wrongPods = told, map[string]map[types.UID]bool{}
	for _, look := range []struct {
		pods []*corev1.Pod
		want string
	}{
		{nil, ""},
		{[]*corev1.Pod{on("a", "n1")}, "1 nodes, such as n1"},
		{[]*corev1.Pod{on("a", "n1")}, ""},
		{[]*corev1.Pod{on("b", "n2")}, "1 nodes, such as n2"},
		{[]*corev1.Pod{on("c", "n2")}, "1 nodes, such as n2"},
		{[]*corev1.Pod{on("d", "n4"), on("c", "n2"), on("d", "n4")}, "2 nodes, such as n2, n4"},
		{[]*corev1.Pod{on("d", "n4")}, ""},
	} {
		g.tellWrong(ds, look.pods)
		event := ""
		select {
		case event = <-told.Events:
		default:
		}
		if (look.want == "") != (event == "") || !strings.Contains(event, " "+look.want) && look.want != "" {
			t.Errorf("of %d pods it says %q, want %q", len(look.pods), event, look.want)
		}
	}
}
