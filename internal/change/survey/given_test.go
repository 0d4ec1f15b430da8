package survey

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/beside/admit"
)

// TestASurveyOfWhatAnotherWasGiven: a DaemonSet that is taken over stays so.
func TestASurveyOfWhatAnotherWasGiven(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent",
		Annotations: map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}}}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	s := New(Objects{DaemonSets: []*appsv1.DaemonSet{ds}})
	for range 3 {
		got := s.DaemonSet("default", "agent")
		if !s.Beside() || !admit.Taken(got) || got.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
			t.Fatalf("it is %+v with %v", got.Spec.UpdateStrategy, got.Annotations)
		}
		s = New(s.Given())
	}
}
