package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/volume"
)

// ProtectVolume says what finalizers a volume should have: one that is bound stays until it is not. The second result
// is false if it has them.
func ProtectVolume(v *corev1.PersistentVolume) ([]string, bool) {
	return protect(
		v.Finalizers, volume.Protection, v.DeletionTimestamp == nil || v.Status.Phase == corev1.VolumeBound,
		v.DeletionTimestamp == nil,
	)
}

// ProtectClaim is like ProtectVolume for a claim that is used by pods, or not.
func ProtectClaim(c *corev1.PersistentVolumeClaim, used bool) ([]string, bool) {
	return protect(c.Finalizers, volume.ClaimProtection, c.DeletionTimestamp == nil || used, c.DeletionTimestamp == nil)
}

func protect(now []string, name string, wanted, mayAdd bool) ([]string, bool) {
	there := slices.Contains(now, name)
	switch {
	case wanted && !there && mayAdd:
		return append(slices.Clone(now), name), true
	case !wanted && there:
		return slices.DeleteFunc(slices.Clone(now), func(f string) bool { return f == name }), true
	}
	return now, false
}

// Uses says whether a pod keeps a claim from going. A pod without a node does not: it will not start with a claim that
// is leaving. Nor does a pod that is over keep a claim that was made for it alone.
func Uses(p *corev1.Pod, claim string) bool { return slices.Contains(UsedBy(p), claim) }

// UsedBy are the claims that a pod keeps from going.
func UsedBy(p *corev1.Pod) (names []string) {
	if p.Spec.NodeName == "" {
		return nil
	}
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if name := volume.ClaimName(p.Name, v); name != "" && !(over && v.Ephemeral != nil) {
			names = append(names, name)
		}
	}
	return names
}
