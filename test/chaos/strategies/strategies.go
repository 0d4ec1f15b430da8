// Package strategies chooses how DaemonSets of a round are updated, and how policies have them change; pure.
package strategies

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
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

// Vary has waves grow, and nodes fetch images before their turn, in rounds that are about these.
func Vary(spec *v1alpha1.RolloutPolicySpec, other int, ramps, fetches bool) {
	if ramps {
		ramp(spec, other)
	}
	if fetches {
		fetch(spec, other)
	}
}

// ramp has most policies grow.
func ramp(spec *v1alpha1.RolloutPolicySpec, other int) {
	if other/96%3 == 0 {
		return
	}
	most := ptr.To(intstr.FromInt32(int32(1 + other%2)))
	ramp := v1alpha1.Wave{Name: "more", Nodes: &metav1.LabelSelector{}, Ramp: &v1alpha1.Ramp{}, MaxUnavailable: most}
	without := func(w v1alpha1.Wave) bool { return w.Each != "" || w.Ramp != nil }
	spec.Waves = append(slices.DeleteFunc(spec.Waves, without), ramp)
}

// fetch has nodes of most waves fetch images before their turn. An agent that is away, or a loop that hangs, is waited
// for, and no longer than a round takes to settle.
func fetch(spec *v1alpha1.RolloutPolicySpec, other int) {
	for i := range spec.Waves {
		if other/16>>i%4 > 0 {
			spec.Waves[i].Fetch, spec.Waves[i].FetchDeadline = true, v1alpha1.Duration([]string{"15s", "1s", "15s"}[other/7%3])
		}
	}
}

// Closed is a window that does not open today, nor tomorrow.
func Closed(now time.Time) v1alpha1.Window {
	return v1alpha1.Window{Days: []string{now.UTC().AddDate(0, 0, 3).Weekday().String()[:3]}, From: "00:00", To: "24:00"}
}
