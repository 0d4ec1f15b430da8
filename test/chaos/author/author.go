// Package author writes the ConfigMap and the Secret that the templates of a round name, as their author does: values
// that work, one that does not, and what policies say of them.
package author

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/plan"
)

// What the objects hold under their only key; with Bad, and its like in a Secret, containers end.
const (
	key   = "value"
	first = "v0"
	last  = "v9"
	Bad   = "bad"
	// secretly begins each value of the Secret, and no other text of a round.
	secretly = "s3cr3t-"
)

// Ills is what ails pods that read Bad, as the last items of the faults of simulated nodes, and has tags move.
const Ills = `
- name: bad content
  badContent: {key: ` + key + `, value: ` + Bad + `, after: 50ms, exitCode: 2}
- name: bad secret
  badContent: {key: ` + key + `, value: ` + secretly + Bad + `, after: 50ms, exitCode: 2}
tags: {move: 1s}
`

// Places are labels of nodes: most can have running pods show other content.
const Places = `- {key: everynode.io/live-content, values: ["true", "true", "true", "true", "false"]}
`

// Traces are the texts of which one is in each text that tells a value of the Secret, as it is or in base64.
func Traces() []string {
	whole := secretly[:len(secretly)/3*3] // so many characters go by threes
	return []string{secretly, base64.StdEncoding.EncodeToString([]byte(whole))}
}

// Author writes as one person. A nil one does nothing: in its rounds there are no such objects.
type Author struct {
	// API is how to write to a namespace now.
	API       func() kubernetes.Interface
	Namespace string
	// Reads is what templates name, and how.
	Reads plan.Reads
	// Wrote is told of each write, with its answer.
	Wrote func(kind string, sent, got metav1.Object, err error)
	// Deleted is told of each deletion.
	Deleted func(kind string, gone metav1.Object, err error)
}

// objects are those that templates name.
func (a *Author) objects() []revision.Ref {
	switch a.Reads {
	case plan.ReadsMap:
		return []revision.Ref{revision.Map}
	case plan.ReadsSecret:
		return []revision.Ref{revision.Secret}
	}
	return []revision.Ref{revision.Map, revision.Secret}
}

// Pick is one of them.
func (a *Author) Pick(number int) revision.Ref {
	all := a.objects()
	return all[number%len(all)]
}

// Prepare makes them, and gives the DaemonSet controller the right to read them.
func (a *Author) Prepare(ctx context.Context) error {
	if a == nil {
		return nil
	}
	for _, role := range []string{"everynode:content", "everynode:content-secrets"} {
		if err := a.allow(ctx, role); err != nil {
			return err
		}
	}
	for _, ref := range a.objects() {
		if err := a.create(ctx, ref, first); err != nil {
			return err
		}
	}
	return nil
}

func (a *Author) allow(ctx context.Context, role string) error {
	right := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(role, ":", "-"), Namespace: a.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "daemon-set-controller",
		}},
	}
	_, err := a.API().RbacV1().RoleBindings(a.Namespace).Create(ctx, right, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("give the rights of %s: %w", role, err)
	}
	return nil
}

func (a *Author) create(ctx context.Context, ref revision.Ref, value string) error {
	o := ours(ref, a.Namespace)
	put(o, value)
	created, err := a.send(ctx, o, true)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	a.Wrote(ref.Kind, o, created, err)
	return err
}

// Follow has most policies make some of the objects a part of revisions, and most pin images.
func (a *Author) Follow(spec *v1alpha1.RolloutPolicySpec, pick int) {
	if a == nil {
		return
	}
	if pick/512%4 > 0 {
		spec.Images = v1alpha1.ImagesPinned
	}
	if pick%8 == 0 {
		return
	}
	settle := []v1alpha1.Duration{"100ms", "1s"}[pick/8%2]
	apply := []v1alpha1.ContentApply{v1alpha1.ContentRestart, v1alpha1.ContentLive}[pick%2]
	if a.Reads == plan.InVolumes {
		apply = v1alpha1.ContentLive
	}
	spec.Content = &v1alpha1.Content{Apply: apply, Settle: settle}
	if pick/16%4 > 0 {
		spec.Content.Secrets = v1alpha1.ContentReferenced
	}
	if pick/64%8 == 0 {
		spec.Content.ConfigMaps = v1alpha1.ContentNone
	}
}

// Good is one of few values that work, so that edits are taken back too.
func Good(pick int) string { return fmt.Sprintf("v%d", pick%3) }

// Write writes a value.
func (a *Author) Write(ctx context.Context, ref revision.Ref, value string) error {
	return a.write(ctx, ref, func(string) string { return value })
}

// Delete deletes an object. The next value that is written makes it again.
func (a *Author) Delete(ctx context.Context, ref revision.Ref) error {
	o, err := a.get(ctx, ref)
	if err == nil {
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(o.GetUID()))}
		if ref.Kind == revision.SecretKind {
			err = a.API().CoreV1().Secrets(a.Namespace).Delete(ctx, ref.Name, options)
		} else {
			err = a.API().CoreV1().ConfigMaps(a.Namespace).Delete(ctx, ref.Name, options)
		}
		a.Deleted(ref.Kind, o, err)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Mend writes a value that works in place of each that does not, or of none. Where running pods can be given it, it is
// another one for all.
func (a *Author) Mend(ctx context.Context) error {
	if a == nil {
		return nil
	}
	for _, ref := range a.objects() {
		err := a.write(ctx, ref, func(was string) string {
			switch {
			case a.Reads == plan.InVolumes: // so that a fleet that is well is given it
				return last
			case was == Bad || was == "":
				return first
			}
			return was
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes what follows from what is there.
func (a *Author) write(ctx context.Context, ref revision.Ref, next func(string) string) error {
	o, err := a.get(ctx, ref)
	if apierrors.IsNotFound(err) {
		return a.create(ctx, ref, next(""))
	}
	if err != nil {
		return err
	}
	was := held(o)
	value := next(was)
	if value == was {
		return nil
	}
	put(o, value)
	updated, err := a.send(ctx, o, false)
	a.Wrote(ref.Kind, o, updated, err)
	return err
}

// Stuck reports whether a pod has read what it does not work with, and has ended. Where content is no part of
// revisions nobody replaces it when the object is mended: it read that once, or keeps its copies.
func (a *Author) Stuck(p *corev1.Pod) bool {
	if a == nil || len(revision.Named(&p.Spec)) == 0 {
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

// Direct reports whether a pod names an object itself, which may be no part of its revision.
func (a *Author) Direct(p *corev1.Pod) bool {
	return slices.ContainsFunc(revision.Named(&p.Spec), func(r revision.Ref) bool {
		return r == revision.Map || r == revision.Secret
	})
}
