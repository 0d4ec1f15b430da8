package sources

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWatchesKeepOnlyWhatIsRead(t *testing.T) {
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "a", Namespace: "n", Labels: map[string]string{discoveryv1.LabelServiceName: "s"},
			Annotations:     map[string]string{corev1.LastAppliedConfigAnnotation: "{}"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			OwnerReferences: []metav1.OwnerReference{{Name: "owner"}},
		}
	}
	host, node := "h", "node-1"
	for _, obj := range []any{
		&corev1.Service{ObjectMeta: meta(), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.20"}},
		&discoveryv1.EndpointSlice{ObjectMeta: meta(), Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.244.0.1"}, Hostname: &host, NodeName: &node, TargetRef: &corev1.ObjectReference{Name: "pod"},
		}}},
		&corev1.Namespace{ObjectMeta: meta()},
	} {
		kept, err := dropUnread(obj)
		if err != nil {
			t.Fatal(err)
		}
		if m := kept.(metav1.Object); m.GetName() != "a" || m.GetAnnotations() != nil || m.GetManagedFields() != nil ||
			m.GetOwnerReferences() != nil {
			t.Errorf("of %T is kept: %v", obj, kept)
		}
		switch kept := kept.(type) {
		case *corev1.Service:
			if kept.Spec.ClusterIP != "10.96.0.20" {
				t.Errorf("a service lost its address: %v", kept)
			}
		case *discoveryv1.EndpointSlice:
			e := kept.Endpoints[0]
			if kept.Labels[discoveryv1.LabelServiceName] != "s" || e.TargetRef != nil || e.NodeName == nil ||
				e.Hostname == nil || len(e.Addresses) != 1 {
				t.Errorf("of an endpoint slice is kept: %v", kept)
			}
		}
	}
	pod := &corev1.Pod{ObjectMeta: meta()}
	if kept, err := dropUnread(pod); err != nil || kept.(*corev1.Pod).Annotations == nil {
		t.Errorf("pods can show their annotations to themselves, and they are gone: %v", err)
	}
}
