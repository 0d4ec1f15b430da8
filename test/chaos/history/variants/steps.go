package variants

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/waves"
)

// awaits reports whether a rollout surely has not begun the step of a pod's node, by any policy that can have counted.
func (j *judge) awaits(r *v1alpha1.DaemonSetRollout, d *appsv1.DaemonSet, p *corev1.Pod, low, high int64) bool {
	s := &r.Status
	at := slices.IndexFunc(s.Steps, func(step v1alpha1.StepStatus) bool { return step.Name == s.Step })
	if at < 0 || s.Phase == v1alpha1.PhaseRolledBack {
		return false
	}
	var begun []string
	for _, step := range s.Steps[:at+1] {
		begun = append(begun, step.Name)
	}
	policies := j.ruling(d, low, high)
	nodes := j.book.Nodes(daemon.TargetOf(p), low, high)
	for _, policy := range policies {
		for _, n := range nodes {
			for _, stage := range waves.Of(policy, n) {
				ramp := stage.Wave < len(policy.Spec.Waves) && policy.Spec.Waves[stage.Wave].Ramp != nil
				if ramp || slices.Contains(begun, stage.Name(policy)) {
					return false
				}
			}
		}
	}
	return len(policies) > 0 && len(nodes) > 0
}

// ruling are the policies that can have counted for a DaemonSet: each that there was. With none at some time all may.
func (j *judge) ruling(d *appsv1.DaemonSet, low, high int64) (out []*v1alpha1.RolloutPolicy) {
	for _, m := range j.moments(low, high) {
		var state history.State
		for _, versions := range j.policies {
			for i, v := range versions {
				if v.at <= m && (i+1 == len(versions) || versions[i+1].at > m) && v.is != nil {
					state.Policies = append(state.Policies, v.is)
				}
			}
		}
		p := state.PolicyOf(d)
		if p == nil {
			return nil
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func (j *judge) moments(low, high int64) []int64 {
	out := []int64{low}
	for _, versions := range j.policies {
		for _, v := range versions {
			if v.at > low && v.at <= high {
				out = append(out, v.at)
			}
		}
	}
	return out
}
