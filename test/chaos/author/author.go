// Package author writes the ConfigMap that the templates of a round mount, as its author does: values that work, one
// that does not, and what policies say of it.
package author

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// What the ConfigMap holds under its only key; with Bad containers end.
const (
	key   = "value"
	first = "v0"
	Bad   = "bad"
)

// Ills is what ails pods that read Bad, as an item of the faults of simulated nodes.
const Ills = `
- name: bad content
  badContent: {key: ` + key + `, value: ` + Bad + `, after: 50ms, exitCode: 2}
`

// Author writes as one person. A nil one does nothing: in its rounds there is no such ConfigMap.
type Author struct {
	// API is how to write to a namespace now.
	API       func() kubernetes.Interface
	Namespace string
	// Wrote is told of each write, with its answer.
	Wrote func(kind string, sent, got metav1.Object, err error)
	// Deleted is told of each deletion.
	Deleted func(kind string, gone metav1.Object, err error)
}

// Prepare makes the ConfigMap, and gives the DaemonSet controller the right to read it.
func (a *Author) Prepare(ctx context.Context) error {
	if a == nil {
		return nil
	}
	right := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "content", Namespace: a.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everynode:content"},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "daemon-set-controller",
		}},
	}
	_, err := a.API().RbacV1().RoleBindings(a.Namespace).Create(ctx, right, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("give the right on ConfigMaps: %w", err)
	}
	return a.create(ctx, first)
}

func (a *Author) create(ctx context.Context, value string) error {
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: revision.Object, Namespace: a.Namespace}, Data: map[string]string{key: value},
	}
	created, err := a.API().CoreV1().ConfigMaps(a.Namespace).Create(ctx, m, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	a.Wrote("ConfigMap", m, created, err)
	return err
}

// Mount has a template refer to the ConfigMap in each way that there is.
func (a *Author) Mount(t *corev1.PodTemplateSpec) {
	if a == nil {
		return
	}
	of := &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: revision.Object}, Optional: new(true),
	}
	t.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: of}}}
	main := &t.Spec.Containers[0]
	main.VolumeMounts = []corev1.VolumeMount{{Name: "conf", MountPath: "/conf/value", SubPath: key}}
	main.EnvFrom = []corev1.EnvFromSource{{
		ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: of.LocalObjectReference, Optional: of.Optional},
	}}
	main.Env = []corev1.EnvVar{{Name: "VALUE", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: of.LocalObjectReference, Key: key, Optional: of.Optional,
		},
	}}}
}

// Follow has most policies make the ConfigMap a part of revisions.
func (a *Author) Follow(spec *v1alpha1.RolloutPolicySpec, pick int) {
	if a != nil && pick%8 > 0 {
		settle := []v1alpha1.Duration{"100ms", "1s"}[pick/8%2]
		apply := []v1alpha1.ContentApply{v1alpha1.ContentRestart, v1alpha1.ContentLive}[pick%2]
		spec.Content = &v1alpha1.Content{Apply: apply, Settle: settle}
	}
}

// Good is one of few values that work, so that edits are taken back too.
func Good(pick int) string { return fmt.Sprintf("v%d", pick%3) }

// Write writes a value.
func (a *Author) Write(ctx context.Context, value string) error {
	return a.write(ctx, func(string) string { return value })
}

// Delete deletes the ConfigMap. The next value that is written makes it again.
func (a *Author) Delete(ctx context.Context) error {
	api := a.API().CoreV1().ConfigMaps(a.Namespace)
	m, err := api.Get(ctx, revision.Object, metav1.GetOptions{})
	if err == nil {
		err = api.Delete(ctx, m.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(m.UID))})
		a.Deleted("ConfigMap", m, err)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Mend writes a value that works in place of one that does not, or of none.
func (a *Author) Mend(ctx context.Context) error {
	if a == nil {
		return nil
	}
	return a.write(ctx, func(was string) string {
		if was == Bad || was == "" {
			return first
		}
		return was
	})
}

// write writes what follows from what is there.
func (a *Author) write(ctx context.Context, next func(string) string) error {
	m, err := a.API().CoreV1().ConfigMaps(a.Namespace).Get(ctx, revision.Object, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return a.create(ctx, next(""))
	}
	if err != nil {
		return err
	}
	was := m.Data[key]
	m.Data = map[string]string{key: next(was)}
	if m.Data[key] == was {
		return nil
	}
	updated, err := a.API().CoreV1().ConfigMaps(a.Namespace).Update(ctx, m, metav1.UpdateOptions{})
	a.Wrote("ConfigMap", m, updated, err)
	return err
}

// Stuck reports whether a pod has read what it does not work with, and has ended. Where content is no part of
// revisions nobody replaces it when the object is mended: it read that once, or keeps its copies.
func (a *Author) Stuck(p *corev1.Pod) bool {
	if a == nil || len(p.Spec.Volumes) == 0 || p.Spec.Volumes[0].ConfigMap == nil {
		return false
	}
	if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	return true
}
