package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/plan"
)

// longWords is what an admission policy says that has much to say.
var longWords = strings.Repeat("this pod is refused, and here is why: ", 100_000/38)

// deleteRevision takes one of the ControllerRevisions away.
func (u *user) deleteRevision(ctx context.Context, s plan.Step) (string, error) {
	api := u.cluster.api().AppsV1().ControllerRevisions(namespace)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	r := &list.Items[s.Pick%len(list.Items)]
	err = api.Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
	u.deleted("ControllerRevision", r, err)
	return r.Name, err
}

// labelNodes gives some nodes a label, or all, by which an image does not work there.
func (u *user) labelNodes(ctx context.Context, s plan.Step, label string) (string, error) {
	api := u.cluster.api().CoreV1().Nodes()
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var names []string
	for i := range list.Items {
		n := list.Items[i].DeepCopy()
		if s.Pick%3 > 0 && (s.Other>>(i%16))&1 == 0 {
			continue
		}
		metav1.SetMetaDataLabel(&n.ObjectMeta, label, "yes")
		updated, err := api.Update(ctx, n, metav1.UpdateOptions{})
		u.wrote("Node", n, updated, err)
		if err != nil {
			return strings.Join(names, " "), err
		}
		names = append(names, n.Name)
	}
	return strings.Join(names, " "), nil
}

// reach waits until a new template is on all nodes but the dead ones, and those that must wait for such.
func (u *user) reach(ctx context.Context) error {
	if err := u.renew(ctx); err != nil {
		return err
	}
	last := ""
	return until(ctx, "all but the dead nodes to have what they are to have", func(ctx context.Context) error {
		if err := u.letGoOn(ctx); err != nil {
			return err
		}
		state, err := u.state(ctx)
		if err != nil {
			return err
		}
		open := history.Stranded(state, time.Now())
		if len(open) == 0 {
			return nil
		}
		for _, r := range state.Rollouts {
			open = append(open, fmt.Sprintf("rollout %s is %s: %s", r.Name, r.Status.Phase, r.Status.Message))
		}
		for _, d := range state.Sets {
			st := d.Status
			open = append(open, fmt.Sprintf("%s wants %d daemons, and has %d updated and %d available",
				d.Name, st.DesiredNumberScheduled, st.UpdatedNumberScheduled, st.NumberAvailable))
		}
		text := strings.Join(open, "; ")
		if text != last {
			u.journal.note("stranded: %s", text)
		}
		last = text
		return errors.New(text)
	})
}

// renew gives each DaemonSet a template that works.
func (u *user) renew(ctx context.Context) error {
	return until(ctx, "the templates to be new", func(ctx context.Context) error {
		sets, err := u.sets(ctx)
		if err != nil {
			return err
		}
		for i := range sets {
			d := sets[i].DeepCopy()
			u.setImage(d, goodImage)
			updated, err := u.cluster.api().AppsV1().DaemonSets(namespace).Update(ctx, d, metav1.UpdateOptions{})
			u.wrote("DaemonSet", d, updated, err)
			if err != nil {
				return err
			}
			u.journal.note("user: renew %s, template %s", d.Name, d.Spec.Template.Annotations[history.TemplateMark])
		}
		return nil
	})
}
