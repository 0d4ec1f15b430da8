package node

import (
	"slices"
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
	const since = " since 2026-03-01 08:05 UTC"
	for name, c := range map[string]struct {
		conditions []corev1.NodeCondition
		// about is what is said, in what for short.
		in    string
		about []string
	}{
		"none": {nil, "", nil},
		"over": {[]corev1.NodeCondition{over, unknown}, "", nil},
		"planned": {[]corev1.NodeCondition{is(corev1.NodeMaintenancePlanned, "Kernel", "on Sunday")}, "",
			[]string{"maintenance is planned: MaintenancePlanned" + since + ", says Kernel: on Sunday"}},
		"in it": {[]corev1.NodeCondition{is(corev1.NodeMaintenanceInProgress, "Kernel", "a new one")},
			"in maintenance: MaintenanceInProgress" + since + ", says Kernel: a new one",
			[]string{"in maintenance: MaintenanceInProgress" + since + ", says Kernel: a new one"}},
		"being drained": {[]corev1.NodeCondition{is(corev1.NodeDrainInProgress, "", "")},
			"in maintenance: DrainInProgress" + since, []string{"in maintenance: DrainInProgress" + since}},
		"drained": {[]corev1.NodeCondition{timeless}, "in maintenance: Drained", []string{"in maintenance: Drained"}},
		"shutting down": {[]corev1.NodeCondition{is(corev1.NodeGracefulNodeShutdownInProgress, "", "it goes down")},
			"in maintenance: GracefulNodeShutdownInProgress" + since + ", says it goes down",
			[]string{"in maintenance: GracefulNodeShutdownInProgress" + since + ", says it goes down"}},
		"several": {[]corev1.NodeCondition{is(corev1.NodeMaintenancePlanned, "", ""), is(corev1.NodeDrained, "", ""), is(corev1.NodeMaintenanceInProgress, "Kernel", "")},
			"in maintenance: MaintenanceInProgress" + since + ", says Kernel",
			[]string{"in maintenance: MaintenanceInProgress" + since + ", says Kernel", "in maintenance: Drained" + since, "maintenance is planned: MaintenancePlanned" + since}},
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: c.conditions}}
		if in, about := Maintenance(n), AboutMaintenance(n); in != c.in || !slices.Equal(about, c.about) {
			t.Errorf("%s: %q, %q; want %q, %q", name, in, about, c.in, c.about)
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
