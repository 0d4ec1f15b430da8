package survey

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
)

// Unseen says what no controller has taken note of, or cannot act on. For longer than a moment that means that none is
// running that would, and what else is foretold does not happen.
func (s *Survey) Unseen(ds *appsv1.DaemonSet) []string {
	var out []string
	if ds.Status.ObservedGeneration < ds.Generation {
		out = append(out, "no controller has taken note of the last change of the DaemonSet yet; is one running?")
	}
	// One without a UID is not stored: it comes with the manifests of a plan.
	p, r := s.Policy(ds), s.Rollout(ds)
	if p != nil && p.UID != "" && p.Status.ObservedGeneration == 0 && r == nil {
		out = append(out, "no controller has taken note of policy "+p.Name+" yet, so nobody follows it; "+
			"is one running that knows policies, such as everynode controller?")
	}
	if !s.beside {
		return out
	}
	return append(out, besides(ds, p, r)...)
}

// besides says what is wrong with a DaemonSet where another controller makes the pods.
func besides(ds *appsv1.DaemonSet, p *v1alpha1.RolloutPolicy, r *v1alpha1.DaemonSetRollout) (out []string) {
	own := ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	switch taken := admit.Taken(ds); {
	case !taken && p != nil && p.UID != "" && !own:
		return []string{"policy " + p.Name + " selects it, and it is not taken over, so its pods are replaced without the " +
			"policy; the API server may not reach the webhook, or exempt the namespace: everynode doctor"}
	case !taken:
		return nil
	case p == nil:
		out = append(out, "no policy selects it any more; it is given back when all its pods have the newest template")
	case r == nil || r.Status.DaemonSetGeneration < ds.Generation:
		out = append(out, "no controller of Everynode has taken note of the last change yet; is one running?")
	}
	for _, c := range ds.Status.Conditions {
		if c.Type == v1alpha1.RolloutReconciling && c.Reason == admit.NotAsked {
			out = append(out, "no pod is deleted: "+c.Message)
		}
	}
	return out
}
