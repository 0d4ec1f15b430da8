package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestIsReady(t *testing.T) {
	n := &corev1.Node{}
	if IsReady(n) {
		t.Error("a node without conditions counts as ready")
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if IsReady(n) {
		t.Error("a node whose readiness is unknown counts as ready")
	}
	n.Status.Conditions[0].Status = corev1.ConditionTrue
	if !IsReady(n) {
		t.Error("a node whose Ready condition is True does not count as ready")
	}
}

func TestHasTaint(t *testing.T) {
	n := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}}}
	if !HasTaint(n, "k", corev1.TaintEffectNoSchedule) {
		t.Error("the taint is not found when its value differs")
	}
	if HasTaint(n, "k", corev1.TaintEffectNoExecute) {
		t.Error("a taint of another effect is found")
	}
}

func TestAgentAddress(t *testing.T) {
	n := &corev1.Node{}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	if got := AgentAddress(n); got != "" {
		t.Errorf("a node without addresses is called at %s", got)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"}}
	if got := AgentAddress(n); got != "[fd00::1]:10250" {
		t.Errorf("got %s, want the internal address", got)
	}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = 0
	if got := AgentAddress(n); got != "" {
		t.Errorf("a node without a port is called at %s", got)
	}
}
