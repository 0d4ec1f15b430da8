// Package strategies chooses how DaemonSets of a round are updated; pure.
package strategies

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Set sets one of many strategies, and with it how long a pod must be ready.
func Set(spec *appsv1.DaemonSetSpec, pick int) {
	rolling := func(unavailable, surge intstr.IntOrString) {
		spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type:          appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable, MaxSurge: &surge},
		}
	}
	spec.MinReadySeconds = 0
	if pick/8%4 == 0 {
		spec.MinReadySeconds = 1
	}
	none := intstr.FromInt32(0)
	switch pick % 8 {
	case 0, 1:
		rolling(intstr.FromInt32(1), none)
	case 2:
		rolling(intstr.FromInt32(2), none)
	case 3:
		rolling(intstr.FromString("30%"), none)
	case 4:
		rolling(none, intstr.FromInt32(1))
	case 5:
		rolling(none, intstr.FromInt32(2))
	case 6:
		rolling(none, intstr.FromString("25%"))
	case 7:
		spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	}
}
