package job

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

type edit = func(*batchv1.Job)

func work(edits ...edit) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work", UID: "1-2"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "work:v1"}}},
	}}}
	for _, e := range edits {
		e(j)
	}
	SetDefaults(j)
	generateSelector(j)
	return j
}

func indexed(completions int32) edit {
	return func(j *batchv1.Job) {
		j.Spec.CompletionMode, j.Spec.Completions = ptr.To(batchv1.IndexedCompletion), &completions
	}
}

func TestDefaults(t *testing.T) {
	show := func(j *batchv1.Job) string {
		s := j.Spec
		return strings.TrimSpace(fmt.Sprintln(ptr.Deref(s.Completions, -1), *s.Parallelism, *s.BackoffLimit, *s.CompletionMode, *s.Suspend, *s.PodReplacementPolicy))
	}
	for name, c := range map[string]struct {
		edit edit
		want string
	}{
		"nothing said":  {func(*batchv1.Job) {}, "1 1 6 NonIndexed false TerminatingOrFailed"},
		"a work queue":  {func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](3) }, "-1 3 6 NonIndexed false TerminatingOrFailed"},
		"a number":      {func(j *batchv1.Job) { j.Spec.Completions = ptr.To[int32](3) }, "3 1 6 NonIndexed false TerminatingOrFailed"},
		"a limit each":  {func(j *batchv1.Job) { indexed(2)(j); j.Spec.BackoffLimitPerIndex = ptr.To[int32](1) }, "2 1 2147483647 Indexed false TerminatingOrFailed"},
		"a policy":      {func(j *batchv1.Job) { j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{} }, "1 1 6 NonIndexed false Failed"},
		"all was given": {func(j *batchv1.Job) { j.Spec.BackoffLimit, j.Spec.Suspend = ptr.To[int32](0), ptr.To(true) }, "1 1 0 NonIndexed true TerminatingOrFailed"},
	} {
		if got := show(work(c.edit)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	j := work(func(j *batchv1.Job) {
		j.Spec.Template.Labels = map[string]string{"app": "a"}
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: "X"}}}}}
	})
	if got := j.Spec.PodFailurePolicy.Rules[0].OnPodConditions[0].Status; got != corev1.ConditionTrue {
		t.Errorf("the status of a pattern is %q", got)
	}
	if j.Labels["app"] != "a" {
		t.Errorf("the labels are %v, want the template's", j.Labels)
	}
}

func TestGeneratedSelector(t *testing.T) {
	j := work()
	if got := fmt.Sprint(j.Spec.Selector.MatchLabels, j.Spec.Template.Labels); got != "map[batch.kubernetes.io/controller-uid:1-2] "+
		"map[batch.kubernetes.io/controller-uid:1-2 batch.kubernetes.io/job-name:work controller-uid:1-2 job-name:work]" {
		t.Errorf("selector and labels are %s", got)
	}
	own := work(func(j *batchv1.Job) {
		j.Spec.ManualSelector, j.Spec.Selector, j.Spec.Template.Labels = ptr.To(true), selector(map[string]string{"a": "b"}), map[string]string{"a": "b"}
	})
	if got := fmt.Sprint(own.Spec.Selector.MatchLabels, own.Spec.Template.Labels); got != "map[a:b] map[a:b]" {
		t.Errorf("a selector of one's own becomes %s", got)
	}
}

func rule(action batchv1.PodFailurePolicyAction, operator batchv1.PodFailurePolicyOnExitCodesOperator, codes ...int32) edit {
	return func(j *batchv1.Job) {
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: operator, Values: codes}}}}
	}
}

func success(r ...batchv1.SuccessPolicyRule) edit {
	return func(j *batchv1.Job) { j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: r} }
}

func TestValidate(t *testing.T) {
	const rules, successRules = "spec.podFailurePolicy.rules[0]", "spec.successPolicy.rules[0]"
	for name, c := range map[string]struct {
		edits []edit
		want  string
	}{
		"valid": {nil, ""},
		"valid, indexed": {[]edit{indexed(3), func(j *batchv1.Job) {
			j.Spec.BackoffLimitPerIndex, j.Spec.MaxFailedIndexes = ptr.To[int32](1), ptr.To[int32](3)
		}, success(batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("0-1")})}, ""},
		"valid, with a selector of one's own": {[]edit{func(j *batchv1.Job) {
			j.Spec.ManualSelector, j.Spec.Selector = ptr.To(true), selector(map[string]string{"a": "b"})
			j.Spec.Template.Labels = map[string]string{"a": "b"}
		}}, ""},
		"always": {[]edit{func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = "" }}, `spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`},
		"negative": {[]edit{func(j *batchv1.Job) {
			j.Spec.Parallelism, j.Spec.ActiveDeadlineSeconds = ptr.To[int32](-1), ptr.To[int64](-2)
		}},
			"spec.parallelism: Invalid value: -1: must be greater than or equal to 0 spec.activeDeadlineSeconds: Invalid value: -2: must be greater than or equal to 0"},
		"a selector of one's own": {[]edit{func(j *batchv1.Job) { j.Spec.Selector = selector(map[string]string{"a": "b"}) }},
			"spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"batch.kubernetes.io/controller-uid\":\"1-2\"}}: `selector` not auto-generated spec.template.metadata.labels: Invalid value: " +
				"{\"batch.kubernetes.io/controller-uid\":\"1-2\",\"batch.kubernetes.io/job-name\":\"work\",\"controller-uid\":\"1-2\",\"job-name\":\"work\"}: `selector` does not match template `labels`"},
		"a label of one's own": {[]edit{func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{"job-name": "mine"} }},
			"spec.template.metadata.labels[job-name]: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"1-2\",\"batch.kubernetes.io/job-name\":\"work\",\"controller-uid\":\"1-2\",\"job-name\":\"mine\"}: must be 'work'"},
		"no number of indexes": {[]edit{func(j *batchv1.Job) {
			j.Spec.CompletionMode, j.Spec.Parallelism = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](1)
		}}, "spec.completions: Required value: when completion mode is Indexed"},
		"no such mode":          {[]edit{func(j *batchv1.Job) { j.Spec.CompletionMode = ptr.To(batchv1.CompletionMode("X")) }}, `spec.completionMode: Unsupported value: "X": supported values: "NonIndexed", "Indexed"`},
		"a limit without index": {[]edit{func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](1) }}, "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"},
		"too many may fail": {[]edit{indexed(2), func(j *batchv1.Job) {
			j.Spec.BackoffLimitPerIndex, j.Spec.MaxFailedIndexes = ptr.To[int32](1), ptr.To[int32](3)
		}}, "spec.maxFailedIndexes: Invalid value: 3: must be less than or equal to completions"},
		"may fail, no limit":     {[]edit{indexed(2), func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = ptr.To[int32](1) }}, "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"},
		"many, and no limit":     {[]edit{indexed(100001), func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](1) }}, "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"},
		"too long a host name":   {[]edit{indexed(2), func(j *batchv1.Job) { j.Name = strings.Repeat("a", 62) }}, "metadata.name: Invalid value: \"" + strings.Repeat("a", 62) + "\": will not able to create pod with invalid DNS label: " + strings.Repeat("a", 62) + "-1"},
		"an unqualified manager": {[]edit{func(j *batchv1.Job) { j.Spec.ManagedBy = ptr.To("me") }}, `spec.managedBy: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")`},
		"scheduled together":     {[]edit{func(j *batchv1.Job) { j.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{} }}, "spec.scheduling: Forbidden: pods of Jobs are scheduled one by one"},
		"policy, restarts": {[]edit{rule(batchv1.PodFailurePolicyActionFailJob, "In", 1), func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }},
			`spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified`},
		"policy, replaced early": {[]edit{rule(batchv1.PodFailurePolicyActionFailJob, "In", 1), func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.TerminatingOrFailed) }}, `spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"`},
		"codes":                  {[]edit{rule(batchv1.PodFailurePolicyActionFailJob, "In", 3, 0, 3)}, rules + ".onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator " + rules + ".onExitCodes.values[2]: Duplicate value: 3 " + rules + ".onExitCodes.values: Invalid value: [3,0,3]: must be ordered"},
		"no action, operator":    {[]edit{rule("", "", 1)}, rules + `.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"] ` + rules + `.onExitCodes.operator: Required value: valid values: ["In" "NotIn"]`},
		"index without limit":    {[]edit{rule(batchv1.PodFailurePolicyActionFailIndex, "In", 1)}, rules + `.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set`},
		"an empty rule": {[]edit{func(j *batchv1.Job) {
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: "Count"}}}
		}},
			rules + ": Invalid value: specifying one of OnExitCodes and OnPodConditions is required"},
		"success without index":  {[]edit{success(batchv1.SuccessPolicyRule{SucceededCount: ptr.To[int32](1)})}, `spec.successPolicy: Invalid value: {"rules":[{"succeededCount":1}]}: requires indexed completion mode`},
		"success of nothing":     {[]edit{indexed(3), success()}, "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is specified"},
		"success, an empty rule": {[]edit{indexed(3), success(batchv1.SuccessPolicyRule{})}, successRules + ": Required value: at least one of succeededCount or succeededIndexes must be specified"},
		"success of others":      {[]edit{indexed(3), success(batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("1,3")})}, successRules + `.succeededIndexes: Invalid value: "1,3": error parsing succeededIndexes: too large index: "3"`},
		"success of too many": {[]edit{indexed(3), success(batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("1"), SucceededCount: ptr.To[int32](2)})},
			successRules + ".succeededCount: Invalid value: 2: must be less than or equal to 1 (the number of indexes in the specified succeededIndexes field)"},
	} {
		if got := texts(Validate(work(c.edits...))); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func texts(errs field.ErrorList) string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return strings.Join(out, " ")
}

func TestValidateUpdate(t *testing.T) {
	suspended := func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }
	move := func(j *batchv1.Job) {
		j.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
		j.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		j.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
	}
	for name, c := range map[string]struct {
		old, new []edit
		want     string // how the refusal begins
	}{
		"parallelism":                                   {nil, []edit{func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](7) }}, ""},
		"completions":                                   {nil, []edit{func(j *batchv1.Job) { j.Spec.Completions = ptr.To[int32](7) }}, "spec.completions: Invalid value: 7: field is immutable"},
		"completions of an indexed one":                 {[]edit{indexed(2)}, []edit{func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](3), ptr.To[int32](3) }}, ""},
		"completions without parallelism":               {[]edit{indexed(2)}, []edit{func(j *batchv1.Job) { j.Spec.Completions = ptr.To[int32](3) }}, "spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"},
		"the image":                                     {nil, []edit{func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "other" }}, "spec.template: Invalid value:"},
		"the image while suspended":                     {[]edit{suspended}, []edit{func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "other" }}, "spec.template: Invalid value:"},
		"where pods go":                                 {nil, []edit{move}, "spec.template: Invalid value:"},
		"where pods go while suspended":                 {[]edit{suspended}, []edit{move}, ""},
		"where pods go while pods are on their way out": {[]edit{suspended, func(j *batchv1.Job) { j.Status.Active = 1 }}, []edit{move}, "spec.template: Invalid value:"},
		"the manager":                                   {nil, []edit{func(j *batchv1.Job) { j.Spec.ManagedBy = ptr.To("a.b/c") }}, `spec.managedBy: Invalid value: "a.b/c": field is immutable`},
		"the policy":                                    {nil, []edit{rule("Ignore", "In", 1), func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = nil }}, "spec.podFailurePolicy: Invalid value:"},
	} {
		old := work(c.old...)
		j := old.DeepCopy()
		for _, e := range c.new {
			e(j)
		}
		if got := texts(ValidateUpdate(j, old)); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func with(all ...batchv1.JobConditionType) edit {
	return func(j *batchv1.Job) {
		for _, c := range all {
			j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue})
		}
	}
}

func TestValidateStatus(t *testing.T) {
	start, end := &metav1.Time{Time: noon}, &metav1.Time{Time: noon.Add(time.Minute)}
	ran := func(j *batchv1.Job) { j.Status.StartTime = start }
	done := func(j *batchv1.Job) { j.Status.CompletionTime = end }
	good := []edit{ran, done, with(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)}
	for name, c := range map[string]struct {
		old, new []edit
		want     string
	}{
		"complete":                   {nil, good, ""},
		"failed":                     {nil, []edit{ran, with(batchv1.JobFailureTarget, batchv1.JobFailed)}, ""},
		"failed at once":             {nil, []edit{ran, with(batchv1.JobFailed)}, "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"},
		"complete at once":           {nil, []edit{ran, done, with(batchv1.JobComplete)}, "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition"},
		"both":                       {nil, []edit{with(batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet)}, "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"},
		"complete, no time":          {nil, []edit{ran, with(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)}, "status.completionTime: Required value: completionTime is required for Complete jobs"},
		"a time, not complete":       {nil, []edit{ran, done}, `status.completionTime: Invalid value: "2030-01-01T12:01:00Z": cannot set completionTime when there is no Complete=True condition`},
		"complete and active":        {nil, append(good[:3:3], func(j *batchv1.Job) { j.Status.Active = 1 }), "status.active: Invalid value: 1: active>0 is invalid for finished job"},
		"taken back":                 {good, []edit{func(j *batchv1.Job) { j.Status = batchv1.JobStatus{StartTime: start} }}, "status.conditions: Invalid value: cannot disable the terminal Complete=True condition status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"},
		"fewer failed":               {[]edit{func(j *batchv1.Job) { j.Status.Failed = 2 }}, []edit{func(j *batchv1.Job) { j.Status.Failed = 1 }}, "status.failed: Invalid value: 1: cannot decrease the failed counter"},
		"fewer succeeded":            {[]edit{func(j *batchv1.Job) { j.Status.Succeeded = 2 }}, []edit{func(j *batchv1.Job) { j.Status.Succeeded = 1 }}, "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter"},
		"started again":              {[]edit{ran}, []edit{func(j *batchv1.Job) { j.Status.StartTime = end }}, "status.startTime: Required value: startTime cannot be removed for unsuspended job"},
		"started again when resumed": {[]edit{ran, with(batchv1.JobSuspended)}, []edit{func(j *batchv1.Job) { j.Status = batchv1.JobStatus{StartTime: end} }}, ""},
		"more ready than active":     {nil, []edit{func(j *batchv1.Job) { j.Status.Ready = ptr.To[int32](1) }}, "status.ready: Invalid value: 1: cannot set more ready pods than active"},
		"a pod twice": {nil, []edit{func(j *batchv1.Job) {
			j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"a"}, Failed: []types.UID{"a", ""}}
		}}, `status.uncountedTerminatedPods.failed[0]: Duplicate value: "a" status.uncountedTerminatedPods.failed[1]: Invalid value: "": must not be empty`},
		"indexes without indexes":      {nil, []edit{func(j *batchv1.Job) { j.Status.CompletedIndexes = "0" }}, `status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode`},
		"an index that there is not":   {[]edit{indexed(2)}, []edit{func(j *batchv1.Job) { j.Status.CompletedIndexes = "0-2" }}, `status.completedIndexes: Invalid value: "0-2": error parsing completedIndexes: too large index: "2"`},
		"the same after a smaller one": {[]edit{indexed(2), func(j *batchv1.Job) { j.Status.CompletedIndexes = "0-2" }}, nil, ""},
		"an index with two ends": {[]edit{indexed(3), func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](1) }},
			[]edit{func(j *batchv1.Job) { j.Status.CompletedIndexes, j.Status.FailedIndexes = "0-1", ptr.To("1,2") }}, `status.failedIndexes: Invalid value: "1,2": failedIndexes and completedIndexes overlap at index: 1`},
	} {
		old := work(c.old...)
		j := old.DeepCopy()
		for _, e := range c.new {
			e(j)
		}
		if got := texts(ValidateStatusUpdate(j, old)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	started := func(j *batchv1.Job) { j.Status.StartTime = &metav1.Time{Time: noon.Add(-90 * time.Second)} }
	for name, c := range map[string]struct {
		edits []edit
		want  string
	}{
		"new":     {nil, "work Running 0/1  "},
		"running": {[]edit{started}, "work Running 0/1 90s "},
		"a queue": {[]edit{func(j *batchv1.Job) { j.Spec.Parallelism, j.Status.Succeeded = ptr.To[int32](3), 2 }}, "work Running 2/1 of 3  "},
		"complete": {[]edit{started, with(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete), func(j *batchv1.Job) {
			j.Status.Succeeded, j.Status.CompletionTime = 1, &metav1.Time{Time: noon.Add(-80 * time.Second)}
		}}, "work Complete 1/1 10s "},
		"failed":     {[]edit{with(batchv1.JobFailureTarget, batchv1.JobFailed)}, "work Failed 0/1  "},
		"failing":    {[]edit{with(batchv1.JobFailureTarget)}, "work FailureTarget 0/1  "},
		"succeeding": {[]edit{with(batchv1.JobSuccessCriteriaMet)}, "work SuccessCriteriaMet 0/1  "},
		"suspended":  {[]edit{with(batchv1.JobSuspended)}, "work Suspended 0/1  "},
		"going":      {[]edit{func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: noon} }}, "work Terminating 0/1  "},
	} {
		got := fmt.Sprintln(row(work(c.edits...), noon)...)
		if !strings.HasPrefix(got, c.want) || !strings.Contains(got, "main work:v1 batch.kubernetes.io/controller-uid=1-2") {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
