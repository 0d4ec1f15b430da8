package plan

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/objects/volume"
)

// OwnClaims are the claims that a pod has for its ephemeral volumes: they come and go with it.
func OwnClaims(p *corev1.Pod) (out []*corev1.PersistentVolumeClaim) {
	if p.DeletionTimestamp != nil {
		return nil
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		t := v.Ephemeral.VolumeClaimTemplate
		out = append(out, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace, Name: volume.ClaimName(p.Name, v), Labels: t.Labels, Annotations: t.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
			},
			Spec: t.Spec,
		})
	}
	return out
}
