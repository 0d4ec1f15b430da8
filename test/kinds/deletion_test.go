package kinds

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// deletionByStatus: who may write a status cannot mark the object as deleted with it.
func deletionByStatus(t *testing.T, c cluster) {
	ctx, nodes := t.Context(), c.Client.CoreV1().Nodes()
	must(nodes.Create(ctx, &corev1.Node{ObjectMeta: named(c.namespace)}, metav1.CreateOptions{}))(t)
	patch := []byte(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`)
	_, err := nodes.Patch(ctx, c.namespace, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	refused(t, err, metav1.StatusReasonInvalid, "metadata.deletionTimestamp: Invalid value: ")
	refused(t, err, metav1.StatusReasonInvalid, "field is immutable")
	err = nodes.Delete(ctx, c.namespace, metav1.DeleteOptions{})
	if err != nil {
		t.Error(err)
	}
}
