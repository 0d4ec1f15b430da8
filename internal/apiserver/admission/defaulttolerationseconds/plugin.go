// Package defaulttolerationseconds lets every pod stay for some minutes on a node
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

type plugin struct {
	*admission.Handler

	notReady, unreachable int64
}

var _ admission.MutationInterface = plugin{}

// New makes the plugin. The numbers are for how many seconds a pod stays on a node with
// one of the two taints.
func New(notReady, unreachable int64) admission.MutationInterface {
	return plugin{admission.NewHandler(admission.Create, admission.Update), notReady, unreachable}
}

// Admit implements admission.MutationInterface.
func (p plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a Pod but got a %T", a.GetObject()))
	}
	pod.Spec.Tolerations = p.withDefaults(pod.Spec.Tolerations)
	return nil
}

func (p plugin) withDefaults(tolerations []corev1.Toleration) []corev1.Toleration {
	for _, taint := range []struct {
		key     string
		seconds int64
	}{{corev1.TaintNodeNotReady, p.notReady}, {corev1.TaintNodeUnreachable, p.unreachable}} {
		if !tolerates(tolerations, taint.key) {
			tolerations = append(tolerations, corev1.Toleration{
				Key:               taint.key,
				Operator:          corev1.TolerationOpExists,
				Effect:            corev1.TaintEffectNoExecute,
				TolerationSeconds: new(taint.seconds),
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
