// Package defaulttolerationseconds lets every pod stay for five minutes on a node
// that is not ready or cannot be reached, unless the pod itself says otherwise.
// Daemon pods say so: they tolerate both without end.
package defaulttolerationseconds

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
)

// Seconds that a pod stays on a node with one of the two taints.
const Seconds int64 = 300

type plugin struct{ *admission.Handler }

var _ admission.MutationInterface = plugin{}

// New makes the plugin.
func New() admission.MutationInterface {
	return plugin{admission.NewHandler(admission.Create, admission.Update)}
}

// Admit implements admission.MutationInterface.
func (plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a Pod but got a %T", a.GetObject()))
	}
	pod.Spec.Tolerations = withDefaults(pod.Spec.Tolerations)
	return nil
}

func withDefaults(tolerations []corev1.Toleration) []corev1.Toleration {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !tolerates(tolerations, key) {
			tolerations = append(tolerations, corev1.Toleration{
				Key:               key,
				Operator:          corev1.TolerationOpExists,
				Effect:            corev1.TaintEffectNoExecute,
				TolerationSeconds: new(Seconds),
			})
		}
	}
	return tolerations
}

func tolerates(tolerations []corev1.Toleration, key string) bool {
	for _, t := range tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
