package job

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/objects/job"
)

const backoffLimit = 6

// SetDefaults fills in what a Job leaves out. By default one pod is to succeed.
func SetDefaults(j *batchv1.Job) {
	spec := &j.Spec
	if spec.Completions == nil && spec.Parallelism == nil {
		spec.Completions = ptr.To[int32](1)
	}
	setDefault(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		setDefault(&spec.BackoffLimit, math.MaxInt32)
	}
	setDefault(&spec.BackoffLimit, backoffLimit)
	setDefault(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	setDefault(&spec.Suspend, false)
	if spec.PodFailurePolicy != nil {
		setDefault(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	setDefault(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	if len(j.Labels) == 0 {
		j.Labels = spec.Template.Labels
	}
	SetTemplateDefaults(spec)
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// SetTemplateDefaults fills in what Jobs and templates of Jobs leave out alike.
func SetTemplateDefaults(spec *batchv1.JobSpec) {
	if p := spec.PodFailurePolicy; p != nil {
		for i := range p.Rules {
			for k := range p.Rules[i].OnPodConditions {
				if c := &p.Rules[i].OnPodConditions[k]; c.Status == "" {
					c.Status = corev1.ConditionTrue
				}
			}
		}
	}
	defaults.SetTemplate(&spec.Template)
}

// Labels of the time before labels had prefixes; users still select by them.
const (
	legacyJobName       = "job-name"
	legacyControllerUID = "controller-uid"
)

// generateSelector makes a Job select the pods that carry its UID, and its template
// make such pods, unless the user wants to see to that. A label that the user has
// given another value stays; validation refuses it.
func generateSelector(j *batchv1.Job) {
	if ptr.Deref(j.Spec.ManualSelector, false) {
		return
	}
	if j.Spec.Template.Labels == nil {
		j.Spec.Template.Labels = map[string]string{}
	}
	for key, value := range generatedLabels(j) {
		if _, given := j.Spec.Template.Labels[key]; !given {
			j.Spec.Template.Labels[key] = value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = selector(nil)
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, given := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !given {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
}

func generatedLabels(j *batchv1.Job) map[string]string {
	return map[string]string{
		legacyJobName: j.Name, batchv1.JobNameLabel: j.Name,
		legacyControllerUID: string(j.UID), batchv1.ControllerUidLabel: string(j.UID),
	}
}

// mayReschedule reports whether it may still be said where the pods of a Job go and
// what they ask for: while it is suspended and has none.
func mayReschedule(j *batchv1.Job) bool {
	return job.IsSuspended(j) && j.Status.Active == 0 && (j.Status.StartTime == nil || job.Is(j, batchv1.JobSuspended))
}
