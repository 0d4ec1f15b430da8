package plan

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/indexset"
)

// matched is the rule of the failure policy that a failed pod meets: what to do, and
// why. Without a rule the action is Count.
type matched struct {
	action batchv1.PodFailurePolicyAction
	why    string
}

// counts reports whether the failure of a pod counts against the limits.
func counts(j *batchv1.Job, p *corev1.Pod) bool {
	return match(j, p).action != batchv1.PodFailurePolicyActionIgnore
}

// match finds the first rule that a failed pod meets.
func match(j *batchv1.Job, p *corev1.Pod) matched {
	if j.Spec.PodFailurePolicy == nil {
		return matched{action: batchv1.PodFailurePolicyActionCount}
	}
	for i := range j.Spec.PodFailurePolicy.Rules {
		rule := &j.Spec.PodFailurePolicy.Rules[i]
		switch rule.Action {
		case batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionCount,
			batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionFailIndex:
		default:
			continue // of a newer version: as if it were not there
		}
		if what := meets(rule, p); what != "" {
			return matched{rule.Action, fmt.Sprintf("%s matching %v rule at index %d", what, rule.Action, i)}
		}
	}
	return matched{action: batchv1.PodFailurePolicyActionCount}
}

// meets says by what a pod meets a rule; "" if it does not.
func meets(rule *batchv1.PodFailurePolicyRule, p *corev1.Pod) string {
	if codes := rule.OnExitCodes; codes != nil {
		for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
			for i := range list {
				if c := &list[i]; meetsCodes(codes, c) {
					return fmt.Sprintf(
						"Container %s for pod %s/%s failed with exit code %d", c.Name, p.Namespace, p.Name, c.State.Terminated.ExitCode,
					)
				}
			}
		}
		return ""
	}
	for _, pattern := range rule.OnPodConditions {
		for _, c := range p.Status.Conditions {
			if c.Type == pattern.Type && c.Status == pattern.Status {
				return fmt.Sprintf("Pod %s/%s has condition %v", p.Namespace, p.Name, c.Type)
			}
		}
	}
	return ""
}

func meetsCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, c *corev1.ContainerStatus) bool {
	end := c.State.Terminated
	if end == nil || end.ExitCode == 0 || ptr.Deref(r.ContainerName, c.Name) != c.Name {
		return false
	}
	switch r.Operator {
	case batchv1.PodFailurePolicyOnExitCodesOpIn:
		return slices.Contains(r.Values, end.ExitCode)
	case batchv1.PodFailurePolicyOnExitCodesOpNotIn:
		return !slices.Contains(r.Values, end.ExitCode)
	}
	return false // of a newer version: not met
}

// successRule is the number of the rule of the success policy that the indexes meet,
// -1 for none.
func successRule(j *batchv1.Job, done indexset.Set) int {
	if j.Spec.SuccessPolicy == nil || len(done) == 0 {
		return -1
	}
	for i, rule := range j.Spec.SuccessPolicy.Rules {
		considered, enough := done, false
		if rule.SucceededIndexes != nil {
			named := indexset.Read(*rule.SucceededIndexes, int(ptr.Deref(j.Spec.Completions, 0)))
			if len(named) == 0 {
				continue
			}
			considered = done.Common(named)
			enough = considered.Len() == named.Len()
		}
		if enough || rule.SucceededCount != nil && considered.Len() >= int(*rule.SucceededCount) {
			return i
		}
	}
	return -1
}
