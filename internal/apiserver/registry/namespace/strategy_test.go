package namespace

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNameIsALabel(t *testing.T) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelMetadataName: "b", "x": "y"}}}
	SetDefaults(n)
	if n.Labels[corev1.LabelMetadataName] != "a" || n.Labels["x"] != "y" || n.Status.Phase != corev1.NamespaceActive {
		t.Errorf("labels are %v, phase %s", n.Labels, n.Status.Phase)
	}
	generated := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}
	SetDefaults(generated)
	if len(generated.Labels) > 0 {
		t.Errorf("labels before there is a name: %v", generated.Labels)
	}
}

func TestPhaseTellsDeletion(t *testing.T) {
	now := metav1.Now()
	for _, c := range []struct {
		phase   corev1.NamespacePhase
		deleted *metav1.Time
		valid   bool
	}{
		{corev1.NamespaceActive, nil, true}, {corev1.NamespaceTerminating, nil, false},
		{corev1.NamespaceActive, &now, false}, {corev1.NamespaceTerminating, &now, true},
	} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: c.deleted}, Status: corev1.NamespaceStatus{Phase: c.phase}}
		if errs := ValidateStatusUpdate(n); (len(errs) == 0) != c.valid {
			t.Errorf("%s, deleted %v: got %v", c.phase, c.deleted != nil, errs)
		}
	}
}
