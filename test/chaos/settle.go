package main

import (
	"context"
	"errors"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// mend undoes what users broke: images that cannot be pulled, and all that is ill.
func (u *user) mend(ctx context.Context) error {
	if err := errors.Join(u.healNodes(ctx), until(ctx, "what they hold to be mended", u.author.Mend),
		until(ctx, "the variants to be mended", u.tailor.Mend)); err != nil {
		return err
	}
	return until(ctx, "the templates to be mended", func(ctx context.Context) error {
		sets, err := u.sets(ctx)
		if err != nil {
			return err
		}
		for i := range sets {
			d := sets[i].DeepCopy()
			if d.Spec.Template.Spec.Containers[0].Image != badImage && d.Spec.Template.Annotations[illness.Annotation] == "" {
				continue
			}
			u.setImage(d, goodImage)
			updated, err := u.cluster.api().AppsV1().DaemonSets(namespace).Update(ctx, d, metav1.UpdateOptions{})
			u.wrote("DaemonSet", d, updated, err)
			if err != nil {
				return err
			}
			u.journal.note("user: mend %s, template %s", d.Name, d.Spec.Template.Annotations[history.TemplateMark])
		}
		return nil
	})
}

// steady is for how long the fleet must be as it should be: a controller that has
// not yet heard of a deletion may still create pods.
const steady = 500 * time.Millisecond

// settle waits until the fleet is as it should be and stays so, and returns what is
// not if it does not come to that.
func (u *user) settle(ctx context.Context) error {
	var last string
	since := time.Now()
	return until(ctx, "the fleet to settle", func(ctx context.Context) error {
		if err := u.replaceBroken(ctx); err != nil {
			return err
		}
		if err := u.letGoOn(ctx); err != nil {
			return err
		}
		state, err := u.state(ctx)
		if err != nil {
			return err
		}
		if open := unsettled(state, time.Now(), u.kind); len(open) > 0 {
			if text := strings.Join(open, "; "); text != last {
				last = text
				u.journal.note("not settled: %s", text)
			}
			since = time.Now()
			return errors.New(last)
		}
		if time.Since(since) < steady {
			return errors.New("it is settled, but not for long")
		}
		return nil
	})
}

// replaceBroken deletes pods with an image that cannot be pulled, and those of an old template or variant that wait for
// a node which only the new one tolerates or fits: with OnDelete nobody else does. So it is with one that has read what
// does not work.
func (u *user) replaceBroken(ctx context.Context) error {
	broken, err := u.pods(ctx, func(p *corev1.Pod) bool {
		return p.Spec.Containers[0].Image == badImage || p.Annotations[illness.Annotation] != "" || p.Spec.NodeName == "" || u.author.Stuck(p)
	})
	if err != nil {
		return err
	}
	state, err := u.state(ctx)
	if err != nil {
		return err
	}
	for i := range broken {
		owner := metav1.GetControllerOf(&broken[i])
		if owner == nil {
			continue
		}
		for _, d := range state.Sets {
			if d.UID == owner.UID && d.DeletionTimestamp == nil && u.isLeft(d, &broken[i], state) {
				if err := u.deletePod(ctx, &broken[i], nil); err != nil && !refused(err) {
					return err
				}
			}
		}
	}
	return nil
}

// isLeft reports whether nobody but users replaces a pod of a DaemonSet. Others are left alone: one that is made again
// and again may still come up, as far as its rollout can tell, and holds up the change of others in its domain.
func (u *user) isLeft(d *appsv1.DaemonSet, p *corev1.Pod, s history.State) bool {
	if u.author.Stuck(p) && (u.author.Direct(p) && s.HasNewest(d, p) || !revision.WithContent(s.PolicyOf(d))) {
		return true
	}
	old := p.Annotations[history.TemplateMark] != d.Spec.Template.Annotations[history.TemplateMark]
	// One that no node has room for may be of an older variant.
	waits := p.Spec.NodeName == "" && time.Since(p.CreationTimestamp.Time) > unplacedFor
	return d.Spec.UpdateStrategy.RollingUpdate == nil && (old || waits)
}

// unplacedFor is how long a pod may be without a node before users look after it.
const unplacedFor = 10 * time.Second

// state reads everything that is judged.
func (u *user) state(ctx context.Context) (s history.State, err error) {
	api := u.cluster.api()
	sets, err := api.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	revisions, err := api.AppsV1().ControllerRevisions(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	pods, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	policies, err := u.cluster.own().RolloutPolicies(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	rollouts, err := u.cluster.own().DaemonSetRollouts(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	maps, err := api.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	secrets, err := api.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	for i := range maps.Items {
		s.Contents = append(s.Contents, &maps.Items[i])
	}
	for i := range secrets.Items {
		s.Contents = append(s.Contents, &secrets.Items[i])
	}
	variants, err := u.tailor.All(ctx)
	if err != nil {
		return s, err
	}
	return history.State{
		Contents: s.Contents, Variants: pointers(variants),
		Sets: pointers(sets.Items), Revisions: pointers(revisions.Items), Pods: pointers(pods.Items), Nodes: pointers(nodes.Items),
		Policies: pointers(policies.Items), Rollouts: pointers(rollouts.Items),
	}, nil
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}
