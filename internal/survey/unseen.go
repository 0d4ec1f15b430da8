package survey

import (
	appsv1 "k8s.io/api/apps/v1"
)

// Unseen says what no controller has taken note of. For longer than a moment that means that none is running that
// would, and what else is foretold does not happen.
func (s *Survey) Unseen(ds *appsv1.DaemonSet) []string {
	var out []string
	if ds.Status.ObservedGeneration < ds.Generation {
		out = append(out, "no controller has taken note of the last change of the DaemonSet yet; is one running?")
	}
	// One without a UID is not stored: it comes with the manifests of a plan.
	if p := s.Policy(ds); p != nil && p.UID != "" && p.Status.ObservedGeneration == 0 && s.Rollout(ds) == nil {
		out = append(out, "no controller has taken note of policy "+p.Name+" yet, so nobody follows it; "+
			"is one running that knows policies, such as everynode controller?")
	}
	return out
}
