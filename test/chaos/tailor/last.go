package tailor

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
	"github.com/everynode/everynode/test/chaos/plan"
)

// Finish is how the last changes of a round are made.
type Finish struct {
	// Nodes is how to write to nodes now.
	Nodes func() typed.NodeInterface
	// Until tries something until it works, and Settle waits until the fleet is as it should be.
	Until  func(ctx context.Context, what string, try func(context.Context) error) error
	Settle func(ctx context.Context) error
	// Kill ends the controller, and another one begins; nil where none ends. KillLast says that it does so in the midst of
	// the last steps too: whom nodes had to wait for is not known of that one.
	Kill     func(ctx context.Context)
	KillLast bool
	// Apart is where what concerns nobody is written.
	Apart func() typed.ConfigMapInterface
	// Rules are steps that Do takes before, and Last such as it takes after them, until the fleet is as it should be.
	Rules, Last []plan.Step
	Do          func(ctx context.Context, s plan.Step)
}

// change is one of them. With waits nothing comes of it, with kills the controller ends in its middle.
type change struct {
	what         string
	do           func(t *Tailor, ctx context.Context, f *Finish) error
	waits, kills bool
}

// untouched is for how long nothing may come of a conflict.
const untouched = 1500 * time.Millisecond

// Finish changes variants and the classes of nodes in a fleet that is well, each time until it is as it should be: then
// each change reaches all its nodes.
func (t *Tailor) Finish(ctx context.Context, f *Finish) error {
	for _, step := range f.Rules {
		f.Do(ctx, step)
	}
	for _, c := range []change{
		{what: "each class has a variant", do: first},
		{what: "all have other amounts", do: amounts, kills: true},
		{what: "nodes have other classes", do: reclass},
		{what: "two variants are in conflict", do: conflict, waits: true},
		{what: "one is gone, and no conflict is any more", do: last},
	} {
		err := f.Until(ctx, c.what, func(ctx context.Context) error { return c.do(t, ctx, f) })
		if err != nil {
			return err
		}
		t.Note("user: %s", c.what)
		if c.waits {
			time.Sleep(untouched)
			continue
		}
		if c.kills && f.Kill != nil {
			f.Kill(ctx)
		}
		if err := f.Settle(ctx); err != nil {
			return fmt.Errorf("when %s: %w", c.what, err)
		}
	}
	if len(f.Last) == 0 {
		return nil
	}
	err := f.rest(ctx)
	if err != nil {
		return err
	}
	for _, step := range f.Last {
		f.Do(ctx, step)
	}
	if f.Kill != nil && f.KillLast {
		f.Kill(ctx)
	}
	err = f.Settle(ctx)
	if err != nil {
		return fmt.Errorf("after the last steps: %w", err)
	}
	return nil
}

// Before the last steps time passes, and revisions: nodes of a step surely wait for another one only if the controller
// can have known no other daemon of that one since the change began.
const (
	restFor   = 6 * time.Second
	revisions = 100
)

// rest has all be as it is for so long.
func (f *Finish) rest(ctx context.Context) error {
	time.Sleep(restFor)
	return f.Until(ctx, "revisions pass", func(ctx context.Context) error {
		for range revisions / 2 { // each is one that is made, and one that goes
			made, err := f.Apart().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "rest-"}},
				metav1.CreateOptions{})
			if err == nil {
				err = f.Apart().Delete(ctx, made.Name, metav1.DeleteOptions{})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// reclass gives every second node another class.
func reclass(t *Tailor, ctx context.Context, f *Finish) error {
	nodes, err := f.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		n := nodes.Items[i].DeepCopy()
		if i%2 > 0 {
			continue
		}
		n.Labels = Classed(n.Labels, i/2)
		updated, err := f.Nodes().Update(ctx, n, metav1.UpdateOptions{})
		t.Wrote("Node", n, updated, err)
		if err != nil {
			return err
		}
	}
	return nil
}

// first has the first three variants be of all nodes and of two classes.
func first(t *Tailor, ctx context.Context, _ *Finish) error {
	if err := t.remove(ctx, Name(3)); err != nil {
		return err
	}
	return t.each(ctx, main(molds.ByClass, molds.Fixed, "", ""), main(molds.Hundredth, "", "", ""),
		main("", molds.Memory, "", ""))
}

// amounts has them give other amounts, and nothing else.
func amounts(t *Tailor, ctx context.Context, _ *Finish) error {
	return t.each(ctx, main(molds.Fiftieth, molds.Memory, "", ""), main(molds.ByClass, "", "", ""),
		main(molds.Hundredth, molds.Fixed, "", ""))
}

// conflict has the second and the third choose the same nodes.
func conflict(t *Tailor, ctx context.Context, _ *Finish) error {
	third, err := t.client().Get(ctx, Name(2), metav1.GetOptions{})
	if err != nil {
		return err
	}
	second, err := t.client().Get(ctx, Name(1), metav1.GetOptions{})
	if err != nil {
		return err
	}
	Clash(&second.Spec, &third.Spec)
	return t.update(ctx, second)
}

func last(t *Tailor, ctx context.Context, _ *Finish) error { return t.remove(ctx, Name(2)) }

// each gives the first three variants formulas, and no patch.
func (t *Tailor) each(ctx context.Context, of ...map[string]v1alpha1.VariantResources) error {
	for i, nodes := range []*metav1.LabelSelector{nil, class("m"), class("l")} {
		spec := v1alpha1.DaemonSetVariantSpec{Priority: int32(i), Nodes: nodes, Resources: of[i]}
		v, err := t.client().Get(ctx, Name(i), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			v = &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: Name(i), Namespace: t.Namespace}, Spec: spec}
			made, err := t.client().Create(ctx, v, metav1.CreateOptions{})
			t.Wrote("DaemonSetVariant", v, made, err)
			if err != nil {
				return fmt.Errorf("make %s: %w", v.Name, err)
			}
			continue
		}
		if err != nil {
			return err
		}
		v.Spec = spec
		if err := t.update(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a variant, if it is there.
func (t *Tailor) remove(ctx context.Context, name string) error {
	v, err := t.client().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.UID))}
		err = t.client().Delete(ctx, name, options)
		t.Deleted("DaemonSetVariant", v, err)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
