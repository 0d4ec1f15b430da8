package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMaintenance(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 3, 1, 9, 5, 0, 0, time.FixedZone("CET", 3600)))
	is := func(t corev1.NodeConditionType, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: at}
	}
	over := is(corev1.NodeMaintenanceInProgress, "Kernel", "it is done")
	over.Status = corev1.ConditionFalse
	unknown := is(corev1.NodeDrained, "Kernel", "")
	unknown.Status = corev1.ConditionUnknown
	timeless := corev1.NodeCondition{Type: corev1.NodeDrained, Status: corev1.ConditionTrue}
	for name, c := range map[string]struct {
		conditions  []corev1.NodeCondition
		in, planned string
	}{
		"none":    {nil, "", ""},
		"over":    {[]corev1.NodeCondition{over, unknown}, "", ""},
		"planned": {[]corev1.NodeCondition{is(corev1.NodeMaintenancePlanned, "Kernel", "on Sunday")}, "", "maintenance is planned: MaintenancePlanned since 2026-03-01 08:05 UTC, says Kernel: on Sunday"},
		"in it": {[]corev1.NodeCondition{is(corev1.NodeMaintenanceInProgress, "Kernel", "a new one")},
			"in maintenance: MaintenanceInProgress since 2026-03-01 08:05 UTC, says Kernel: a new one", ""},
		"being drained":  {[]corev1.NodeCondition{is(corev1.NodeDrainInProgress, "", "")}, "in maintenance: DrainInProgress since 2026-03-01 08:05 UTC", ""},
		"drained":        {[]corev1.NodeCondition{timeless}, "in maintenance: Drained", ""},
		"shutting down":  {[]corev1.NodeCondition{is(corev1.NodeGracefulNodeShutdownInProgress, "", "it goes down")}, "in maintenance: GracefulNodeShutdownInProgress since 2026-03-01 08:05 UTC, says it goes down", ""},
		"several at one": {[]corev1.NodeCondition{is(corev1.NodeDrained, "", ""), is(corev1.NodeMaintenanceInProgress, "Kernel", "")}, "in maintenance: MaintenanceInProgress since 2026-03-01 08:05 UTC, says Kernel", ""},
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: c.conditions}}
		if in, planned := Maintenance(n), PlannedMaintenance(n); in != c.in || planned != c.planned {
			t.Errorf("%s: %q, %q; want %q, %q", name, in, planned, c.in, c.planned)
		}
	}
}

func TestWordsAboutMaintenanceAreCut(t *testing.T) {
	n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Message: strings.Repeat("ö", 40000)}}}}
	if text := Maintenance(n); len(text) > 1100 || !strings.HasSuffix(text, "ö…") {
		t.Errorf("it says %d bytes, which end with %q", len(text), text[len(text)-9:])
	}
}

// Whoever counts how long something has been so needs all of it, and only what is.
func TestMaintenances(t *testing.T) {
	n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeDrained, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: corev1.NodeMaintenancePlanned, Status: corev1.ConditionTrue},
		{Type: corev1.NodeDrainInProgress, Status: corev1.ConditionFalse},
		{Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionTrue},
	}}}
	var got []corev1.NodeConditionType
	for _, c := range Maintenances(n) {
		got = append(got, c.Type)
	}
	if len(got) != 2 || got[0] != corev1.NodeMaintenanceInProgress || got[1] != corev1.NodeDrained {
		t.Errorf("the conditions are %v", got)
	}
}
