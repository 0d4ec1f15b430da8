package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/author"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// A pod that has ended for what it read is left to its rollout, where that replaces it.
func TestWhomRolloutsReplace(t *testing.T) {
	const none = ""
	object := func(name, is string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{Data: data,
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{revision.ContentLabel: is}}}
	}
	spec := func(config string) corev1.PodSpec {
		from := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
		return corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: from(config)}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: from(revision.Secret.Name)}},
		}}}}
	}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "agent"}}
	d.Spec.Template.Spec = spec(revision.Map.Name)
	d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{}
	owned := metav1.ObjectMeta{
		Labels:          map[string]string{appsv1.ControllerRevisionHashLabelKey: "hash"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
	}
	r := &appsv1.ControllerRevision{ObjectMeta: owned}
	r.Data.Raw = []byte("{}")
	policy := &v1alpha1.RolloutPolicy{Spec: v1alpha1.RolloutPolicySpec{Content: &v1alpha1.Content{}}}
	state := history.State{Sets: []*appsv1.DaemonSet{d}, Revisions: []*appsv1.ControllerRevision{r}}
	state.Contents = append(state.Contents, object(revision.Map.Name, none, map[string]string{"value": "v1"}))
	for id, value := range map[string]string{"old": author.Bad, "new": "v1"} {
		state.Contents = append(state.Contents, object("conf-"+id, revision.Copy, map[string]string{"value": value}),
			object("agent-"+id, revision.Manifest, map[string]string{"content.json": `{"id":"` + id +
				`","members":[{"kind":"ConfigMap","name":"conf","copy":"conf-` + id + `"}]}`}))
	}
	u := &user{author: &author.Author{}}
	for _, c := range []struct {
		content  string
		policies []*v1alpha1.RolloutPolicy
		left     bool
	}{
		{"old", []*v1alpha1.RolloutPolicy{policy}, false}, {"new", []*v1alpha1.RolloutPolicy{policy}, true}, {"old", nil, true},
	} {
		p := &corev1.Pod{ObjectMeta: *owned.DeepCopy(), Spec: spec("conf-" + c.content)}
		p.Labels[revision.Label] = "hash." + c.content
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}}
		state.Policies = c.policies
		if left := u.isLeft(d, p, state); left != c.left {
			t.Errorf("content %s, %d policies: left to users is %t", c.content, len(c.policies), left)
		}
	}
}
