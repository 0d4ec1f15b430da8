package tailor

import (
	"context"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
	"github.com/everynode/everynode/test/chaos/history/wish"
	"github.com/everynode/everynode/test/chaos/plan"
)

// Tailor writes as one person.
type Tailor struct {
	// API is how to write to a namespace now.
	API       func() *everynode.Client
	Namespace string
	// Wrote is told of each write, with its answer, Deleted of each deletion, and Note of what was mended.
	Wrote   func(kind string, sent, got metav1.Object, err error)
	Deleted func(kind string, gone metav1.Object, err error)
	Note    func(format string, args ...any)
}

func (t *Tailor) client() *everynode.DaemonSetVariants { return t.API().DaemonSetVariants(t.Namespace) }

// Step does something to a variant; false if that is none of it.
func (t *Tailor) Step(ctx context.Context, s plan.Step) (what string, is bool, err error) {
	switch s.Op {
	case plan.MakeVariant:
		what, err = t.create(ctx, s)
	case plan.EditVariant, plan.SpoilVariant, plan.RefuseVariant, plan.ClashVariant, plan.DeleteVariant:
		what, err = t.change(ctx, s)
	default:
		return "", false, nil
	}
	return what, true, err
}

func (t *Tailor) create(ctx context.Context, s plan.Step) (string, error) {
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: Name(s.Pick), Namespace: t.Namespace}}
	Set(&v.Spec, v.Name, s.Other, s.Third)
	created, err := t.client().Create(ctx, v, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return "", nil
	}
	t.Wrote("DaemonSetVariant", v, created, err)
	return v.Name + " " + wish.Of(v), err
}

func (t *Tailor) change(ctx context.Context, s plan.Step) (string, error) {
	all, err := t.All(ctx)
	if err != nil || len(all) == 0 {
		return "", err
	}
	v := all[s.Pick%len(all)].DeepCopy()
	switch s.Op {
	case plan.DeleteVariant:
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.UID))}
		err := t.client().Delete(ctx, v.Name, options)
		t.Deleted("DaemonSetVariant", v, err)
		return v.Name, err
	case plan.SpoilVariant:
		Spoil(&v.Spec, s.Other)
	case plan.RefuseVariant:
		Refuse(&v.Spec)
	case plan.ClashVariant:
		Clash(&v.Spec, &all[s.Other%len(all)].Spec)
	default:
		Set(&v.Spec, v.Name, s.Other, s.Third)
	}
	return v.Name + " " + wish.Of(v), t.update(ctx, v)
}

func (t *Tailor) update(ctx context.Context, v *v1alpha1.DaemonSetVariant) error {
	updated, err := t.client().Update(ctx, v, metav1.UpdateOptions{})
	t.Wrote("DaemonSetVariant", v, updated, err)
	return err
}

// All lists the variants.
func (t *Tailor) All(ctx context.Context) ([]v1alpha1.DaemonSetVariant, error) {
	list, err := t.client().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Mend has each be one that can be had, and none be in conflict.
func (t *Tailor) Mend(ctx context.Context) error {
	all, err := t.All(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		v := all[i].DeepCopy()
		if molds.Sound(&v.Spec) && v.Name == Name(int(v.Spec.Priority)) {
			continue
		}
		Set(&v.Spec, v.Name, i, Names*len(good)+i)
		if err := t.update(ctx, v); err != nil {
			return err
		}
		t.Note("user: mend %s %s", v.Name, wish.Of(v))
	}
	return nil
}

// Classed are a node's labels with another class.
func Classed(labels map[string]string, pick int) map[string]string {
	labels = maps.Clone(labels)
	labels[molds.ClassLabel] = classes[pick%len(classes)]
	return labels
}
