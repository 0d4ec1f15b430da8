package plan

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var (
	setKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	podKind = corev1.SchemeGroupVersion.WithKind("Pod")
)

// ClaimName is the name of the claim that the pod has by a template.
func ClaimName(template, pod string) string { return template + "-" + pod }

// Claims are those of the pod with that name, as they are made before it.
func Claims(set *appsv1.StatefulSet, pod string) (out []*corev1.PersistentVolumeClaim) {
	for i := range set.Spec.VolumeClaimTemplates {
		t := &set.Spec.VolumeClaimTemplates[i]
		c := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   set.Namespace,
				Name:        ClaimName(t.Name, pod),
				Labels:      maps.Clone(t.Labels),
				Annotations: maps.Clone(t.Annotations),
			},
			Spec: *t.Spec.DeepCopy(),
		}
		if set.Spec.Selector != nil && len(set.Spec.Selector.MatchLabels) > 0 {
			if c.Labels == nil {
				c.Labels = map[string]string{}
			}
			maps.Copy(c.Labels, set.Spec.Selector.MatchLabels)
		}
		c.OwnerReferences, _ = Owners(set, nil, c)
		out = append(out, c)
	}
	return out
}

// mountClaims has a pod's volumes come from its claims. A claim goes before a volume of the same name in the template.
func mountClaims(set *appsv1.StatefulSet, p *corev1.Pod) {
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return
	}
	claimed := map[string]bool{}
	for i := range set.Spec.VolumeClaimTemplates {
		claimed[set.Spec.VolumeClaimTemplates[i].Name] = true
	}
	volumes := slices.DeleteFunc(slices.Clone(p.Spec.Volumes), func(v corev1.Volume) bool { return claimed[v.Name] })
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(name, p.Name)}}})
	}
	p.Spec.Volumes = volumes
}

// Leaves says why a claim that is there cannot be used by a new pod: it goes with the one before.
func Leaves(c *corev1.PersistentVolumeClaim, pod string) (string, bool) {
	switch {
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("pvc %s is being deleted", c.Name), true
	case slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == podKind.Kind && r.Name == pod
	}):
		return fmt.Sprintf("pvc %s goes with the earlier pod %s", c.Name, pod), true
	}
	return "", false
}

// Owners says whose a claim is, and whether that is another answer than it has. What the set's policy wants deleted
// with the set belongs to the set, what it wants deleted with a number that there is no more belongs to the pod that
// has it; p is nil while there is none.
func Owners(set *appsv1.StatefulSet, p *corev1.Pod, c *corev1.PersistentVolumeClaim) ([]metav1.OwnerReference, bool) {
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	policy := ptr.Deref(
		set.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{},
	)
	tooMany := p != nil && !wanted(set, p)
	withPod := policy.WhenScaled == remove && tooMany
	withSet := policy.WhenDeleted == remove && !withPod
	out := slices.DeleteFunc(slices.Clone(c.OwnerReferences), func(r metav1.OwnerReference) bool {
		return r.UID == set.UID || p != nil && r.UID == p.UID
	})
	if slices.ContainsFunc(out, func(r metav1.OwnerReference) bool { return ptr.Deref(r.Controller, false) }) {
		return c.OwnerReferences, false // somebody else's: leave it to them
	}
	if withSet {
		out = append(out, *metav1.NewControllerRef(set, setKind))
	}
	if withPod {
		out = append(out, *metav1.NewControllerRef(p, podKind))
	}
	return out, !apiequality.Semantic.DeepEqual(out, c.OwnerReferences)
}

// wanted says whether there is to be a pod of that number.
func wanted(set *appsv1.StatefulSet, p *corev1.Pod) bool {
	n, ours := Number(set.Name, p.Name)
	first := 0
	if o := set.Spec.Ordinals; o != nil {
		first = int(o.Start)
	}
	return ours && n >= first && n < first+int(ptr.Deref(set.Spec.Replicas, 1))
}
