package claim

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

func TestJudge(t *testing.T) {
	now := metav1.Now()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", UID: "mine"}}
	deleted := ds.DeepCopy()
	deleted.DeletionTimestamp = &now
	pod := func(owner types.UID, app string, deleting bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}}
		if owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: owner}}, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
		}
		if deleting {
			p.DeletionTimestamp = &now
		}
		return p
	}
	tests := []struct {
		name  string
		owner *appsv1.DaemonSet
		pod   *corev1.Pod
		want  Verdict
	}{
		{"ours", ds, pod("mine", "logs", false), Mine},
		{"ours, terminating", ds, pod("mine", "logs", true), Mine},
		{"ours, and the DaemonSet goes", deleted, pod("mine", "logs", false), Mine},
		{"ours, but does not match", ds, pod("mine", "x", false), Release},
		{"ours, does not match, and the DaemonSet goes", deleted, pod("mine", "x", false), NotMine},
		{"another's", ds, pod("other", "logs", false), NotMine},
		{"nobody's", ds, pod("", "logs", false), Adopt},
		{"nobody's, but does not match", ds, pod("", "x", false), NotMine},
		{"nobody's, terminating", ds, pod("", "logs", true), NotMine},
		{"nobody's, and the DaemonSet goes", deleted, pod("", "logs", false), NotMine},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := Judge(tc.owner, labels.SelectorFromSet(labels.Set{"app": "logs"}), tc.pod); got != tc.want {
				t.Errorf("the verdict is %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSelects(t *testing.T) {
	object := &metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}}
	for _, c := range []struct {
		name     string
		selector *metav1.LabelSelector
		want     bool
	}{
		{"the same label", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, true},
		{"another one", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "proxy"}}, false},
		{"nothing asked for", &metav1.LabelSelector{}, false},
		{"none", nil, false},
		{"no such operator", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Has"}}}, false},
	} {
		if got := Selects(c.selector, object); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
