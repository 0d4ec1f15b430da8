package plan

import (
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/objects/podtemplate"
)

const (
	// indexVariable tells a container its completion index.
	indexVariable = "JOB_COMPLETION_INDEX"
	// longestPrefix leaves room for what the API adds to a name.
	longestPrefix = 58
)

// Pod returns the pod to be made, with the finalizer by which it is counted.
func Pod(j *batchv1.Job, c Creation) *corev1.Pod {
	owner := *metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))
	p := podtemplate.Pod(&j.Spec.Template, j.Namespace, podtemplate.NamePrefix(j.Name), owner)
	if !slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
		p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if c.Index == noIndex {
		return p
	}
	index := strconv.Itoa(c.Index)
	p.GenerateName, p.Spec.Hostname = prefix(j.Name, index), fmt.Sprintf("%s-%s", j.Name, index)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Annotations[batchv1.JobCompletionIndexAnnotation], p.Labels[batchv1.JobCompletionIndexAnnotation] = index, index
	if c.Counts {
		p.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(int(c.Failures))
		delete(p.Annotations, batchv1.JobIndexIgnoredFailureCountAnnotation)
		if c.Ignored > 0 {
			p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(int(c.Ignored))
		}
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			tellIndex(&list[i])
		}
	}
	return p
}

func prefix(name, index string) string {
	end := "-" + index + "-"
	return name[:min(len(name), longestPrefix-len(end))] + end
}

func tellIndex(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation),
		},
	}})
}
