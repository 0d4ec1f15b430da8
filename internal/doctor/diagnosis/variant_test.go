package diagnosis

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// What DaemonSetVariants say is wrong is said here too, and which choose nothing.
func TestVariantsThatAreWrong(t *testing.T) {
	say := func(sets int32, conditions ...metav1.Condition) *v1alpha1.DaemonSetVariant {
		v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v", Generation: 1}}
		v.Status.Conditions, v.Status.DaemonSets, v.Status.ObservedGeneration = conditions, sets, 1
		return v
	}
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: kind + " is " + string(status)}
	}
	unseen := say(0)
	unseen.Status.ObservedGeneration = 0
	for want, v := range map[string]*v1alpha1.DaemonSetVariant{
		"":                 say(1, condition(v1alpha1.VariantApplies, metav1.ConditionTrue), condition(v1alpha1.VariantConflict, metav1.ConditionFalse)),
		"Applies is False": say(1, condition(v1alpha1.VariantApplies, metav1.ConditionFalse)),
		"Conflict is True": say(1, condition(v1alpha1.VariantConflict, metav1.ConditionTrue)),
		"it chooses no DaemonSet of namespace ns": say(0),
	} {
		f := findings{check: "variants"}
		variants(&f, &Cluster{Variants: []*v1alpha1.DaemonSetVariant{v, unseen}})
		var got []string
		for _, one := range f.all {
			got = append(got, one.Message)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("it finds %q, want %q", got, want)
		}
	}
}
