package client

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// TestApplyingLeavesAnnotationsOfOthersAlone: what is applied again as it was takes off what its author took out, and
// nothing of kubectl or controllers.
func TestApplyingLeavesAnnotationsOfOthersAlone(t *testing.T) {
	for applied, want := range map[string]string{
		`{"metadata":{"name":"agent","annotations":{}}}`:           "[kubectl.kubernetes.io/last-applied-configuration mine theirs]",
		`{"metadata":{"name":"agent","annotations":{"mine":"1"}}}`: "[kubectl.kubernetes.io/last-applied-configuration theirs]",
		`{"metadata":{"name":"agent"}}`:                            "[kubectl.kubernetes.io/last-applied-configuration mine theirs]",
	} {
		old := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", Annotations: map[string]string{
			"mine": "1", "theirs": "2", corev1.LastAppliedConfigAnnotation: applied}}}
		patch, err := threeWay(old, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(old)
		if err != nil {
			t.Fatal(err)
		}
		raw, err = strategicpatch.StrategicMergePatch(raw, patch, appsv1.DaemonSet{})
		if err != nil {
			t.Fatal(err)
		}
		var after appsv1.DaemonSet
		err = json.Unmarshal(raw, &after)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(slices.Sorted(maps.Keys(after.Annotations))); got != want {
			t.Errorf("after %s was applied the annotations are %s, want %s (%s)", applied, got, want, patch)
		}
	}
}
