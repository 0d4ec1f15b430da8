// Package podtemplate holds facts about pod templates and the pods made from
// them: a template's hash, whether two templates mean the same, what a pod made
// from one looks like.
package podtemplate

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"
)

// Hash returns the hash by which objects made for a template are named. A
// collision count, once there is one, gives another hash for the same template.
func Hash(template *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(*template))
	if collisions != nil {
		b := make([]byte, 8)
		binary.LittleEndian.PutUint32(b, uint32(*collisions))
		h.Write(b)
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// Same reports whether two templates mean the same, whatever the pod-template-hash
// in their labels.
func Same(a, b *corev1.PodTemplateSpec) bool {
	return apiequality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	out := *t
	out.Labels = maps.Clone(t.Labels)
	delete(out.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return &out
}

// NamePrefix is the prefix of the names of the pods that an owner makes.
func NamePrefix(owner string) string {
	if len(validation.IsDNS1123Subdomain(owner+"-x")) > 0 {
		return owner
	}
	return owner + "-"
}

// Pod returns a new pod from the template, in the namespace, with a name that is
// the API's to complete. It shares nothing with the template.
func Pod(template *corev1.PodTemplateSpec, namespace, prefix string, owner metav1.OwnerReference) *corev1.Pod {
	t := template.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: prefix,
			Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: t.Spec,
	}
}
