package priorityclass

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name  string
		value int32
		want  string
	}{
		{"high", HighestUserPriority, ""},
		{"too-high", HighestUserPriority + 1, "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"},
		{"system-node-critical", 2000001000, ""},
		{"system-node-critical", 1, "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-node-critical PriorityClass must be 2000001000"},
		{"system-mine", 1, "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class"},
	} {
		errs := Validate(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Value: c.value})
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || errs[0].Error() != c.want) {
			t.Errorf("%s %d: got %v, want %s", c.name, c.value, errs, c.want)
		}
	}
}

func TestValueStays(t *testing.T) {
	old := &schedulingv1.PriorityClass{Value: 1, PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}
	c := &schedulingv1.PriorityClass{Value: 2, PreemptionPolicy: ptr.To(corev1.PreemptNever), Description: "d"}
	errs := ValidateUpdate(c, old)
	if len(errs) != 2 || errs[0].Field != "value" || errs[1].Error() != `preemptionPolicy: Invalid value: "Never": field is immutable` {
		t.Errorf("got %v", errs)
	}
}
