package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestUpdatesThatMoveNothingDoNotReachTheLoop: the loop is not woken for most of what nodes and pods say of themselves.
func TestUpdatesThatMoveNothingDoNotReachTheLoop(t *testing.T) {
	yes := true
	pods := map[string]struct {
		edit  func(*corev1.Pod)
		moves bool
	}{
		"status":              {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }, false},
		"running":             {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, false},
		"annotation":          {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, false},
		"succeeded":           {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		"began":               {func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		"label":               {func(p *corev1.Pod) { p.Labels["c"] = "d" }, true},
		"spec":                {func(p *corev1.Pod) { p.Generation = 3 }, true},
		"being deleted":       {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, true},
		"owner":               {func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{UID: "o", Controller: &yes}} }, true},
		"moved":               {func(p *corev1.Pod) { p.Spec.NodeName = "b" }, true},
		"another of the name": {func(p *corev1.Pod) { p.UID = "other" }, true},
		"without generations": {func(p *corev1.Pod) { p.Generation = 0 }, true},
		"still without node":  {func(p *corev1.Pod) { p.Spec.NodeName = "" }, true},
	}
	for name, test := range pods {
		old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p", Generation: 2, Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{NodeName: "a"}}
		if name == "still without node" {
			old.Spec.NodeName = ""
		}
		if name == "without generations" {
			old.Generation = 0
		}
		changed := old.DeepCopy()
		test.edit(changed)
		b := newInbox()
		handler(b, kindPod).OnUpdate(old, changed)
		if moves := len(b.take()) > 0; moves != test.moves {
			t.Errorf("pod, %s: reaches the loop %v, want %v", name, moves, test.moves)
		}
	}
	nodes := map[string]struct {
		edit  func(*corev1.Node)
		moves bool
	}{
		"sign of life": {func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} }, false},
		"label":        {func(n *corev1.Node) { n.Labels = map[string]string{"c": "d"} }, true},
		"taint":        {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} }, true},
		"cordon":       {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"room":         {func(n *corev1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("2") }, true},
	}
	for name, test := range nodes {
		old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "n"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1")}}}
		changed := old.DeepCopy()
		test.edit(changed)
		b := newInbox()
		handler(b, kindNode).OnUpdate(old, changed)
		if moves := len(b.take()) > 0; moves != test.moves {
			t.Errorf("node, %s: reaches the loop %v, want %v", name, moves, test.moves)
		}
	}
}
