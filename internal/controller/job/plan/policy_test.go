package plan

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// A failed pod meets the first rule whose exit codes or conditions are its own.
func TestMatch(t *testing.T) {
	codes := func(action batchv1.PodFailurePolicyAction, operator batchv1.PodFailurePolicyOnExitCodesOperator, container *string, values ...int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{ContainerName: container, Operator: operator, Values: values}}
	}
	disrupted := batchv1.PodFailurePolicyRule{Action: ignore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: "DisruptionTarget", Status: "True"}}}
	pod := func(code int32, condition corev1.ConditionStatus) *corev1.Pod {
		p := &corev1.Pod{}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "side", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
			{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}},
		}
		if condition != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: "DisruptionTarget", Status: condition}}
		}
		return p
	}
	for _, c := range []struct {
		what  string
		rules []batchv1.PodFailurePolicyRule
		pod   *corev1.Pod
		want  batchv1.PodFailurePolicyAction
	}{
		{"no rule", nil, pod(1, ""), count},
		{"a code that is named", []batchv1.PodFailurePolicyRule{codes(failJob, in, nil, 3, 4)}, pod(4, ""), failJob},
		{"a code that is not named", []batchv1.PodFailurePolicyRule{codes(failJob, in, nil, 3, 4)}, pod(5, ""), count},
		{"a code besides those that are named", []batchv1.PodFailurePolicyRule{codes(failJob, notIn, nil, 3, 4)}, pod(5, ""), failJob},
		{"one of those that are left out", []batchv1.PodFailurePolicyRule{codes(failJob, notIn, nil, 3, 4)}, pod(4, ""), count},
		{"no container failed", []batchv1.PodFailurePolicyRule{codes(failJob, notIn, nil, 3, 4)}, pod(0, ""), count},
		{"the container of the rule", []batchv1.PodFailurePolicyRule{codes(failJob, in, new("main"), 4)}, pod(4, ""), failJob},
		{"another container", []batchv1.PodFailurePolicyRule{codes(failJob, in, new("side"), 4)}, pod(4, ""), count},
		{"a condition", []batchv1.PodFailurePolicyRule{disrupted}, pod(1, "True"), ignore},
		{"a condition that is not so", []batchv1.PodFailurePolicyRule{disrupted}, pod(1, "False"), count},
		{"two rules", []batchv1.PodFailurePolicyRule{disrupted, codes(failJob, in, nil, 4)}, pod(4, "True"), ignore},
		{"an operator of a newer version", []batchv1.PodFailurePolicyRule{codes(failJob, "Above", nil, 3)}, pod(4, ""), count},
		{"an action of a newer version", []batchv1.PodFailurePolicyRule{codes("Ask", in, nil, 4), codes(failJob, in, nil, 4)}, pod(4, ""), failJob},
	} {
		j := &batchv1.Job{Spec: batchv1.JobSpec{PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: c.rules}}}
		if got := match(j, c.pod); got.action != c.want {
			t.Errorf("%s: %v, want %s", c.what, got, c.want)
		}
	}
}

const (
	count, ignore, failJob = batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailJob
	in, notIn              = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
)
