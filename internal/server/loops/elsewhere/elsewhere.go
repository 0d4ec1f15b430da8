// Package elsewhere says by which rules nodes get daemons where the DaemonSet controller is another process: it finds
// out from what that one has stored, by the core of that controller.
package elsewhere

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// fresh is how long a look at all objects is good for. It costs milliseconds for a thousand nodes.
const fresh = time.Second

// Placements answers from a cache of objects. It is safe for concurrent use.
type Placements struct {
	objects client.Reader
	clock   clock.PassiveClock

	mu   sync.Mutex
	last *survey.Survey
	// apart are the DaemonSets whose revisions were compared: nodes that wait ask again and again.
	apart map[types.UID]compared
}

// compared says of which revisions it is known whether they want daemons on other nodes than the present template.
type compared struct {
	of struct {
		generation     int64
		stable, target string
		stored         int
	}
	apart bool
}

// most is how many DaemonSets are kept in mind.
const most = 1000

// New returns one that reads objects there. They are not changed.
func New(objects client.Reader, c clock.PassiveClock) *Placements {
	return &Placements{objects: objects, clock: c, apart: map[types.UID]compared{}}
}

// RulesOn returns the rules of the revision that a node is to have of a DaemonSet; nil for those of its present
// template. Known is false while the controller has not taken this template in, or not all can be read.
//
// All objects are looked at only while a change is under way that gives nodes other daemons.
func (p *Placements) RulesOn(ctx context.Context, ds *appsv1.DaemonSet,
	node string) (rules *placement.Rules, known bool) {
	rules, known, err := p.rulesOn(ctx, ds, node)
	if err != nil && ctx.Err() == nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Cannot tell whether a node that starts gets a daemon", "node", node,
			"daemonSet", ds.Namespace+"/"+ds.Name)
	}
	return rules, known && err == nil
}

func (p *Placements) rulesOn(ctx context.Context, ds *appsv1.DaemonSet, node string) (*placement.Rules, bool, error) {
	var rollout v1alpha1.DaemonSetRollout
	err := p.objects.Get(ctx, client.ObjectKeyFromObject(ds), &rollout)
	ended := rollout.Labels[rollouts.OwnerLabel] != string(ds.UID) || rollout.Status.TargetRevision == "" ||
		meta.IsStatusConditionTrue(rollout.Status.Conditions, rollouts.PolicyGone)
	if err != nil || ended {
		return nil, true, client.IgnoreNotFound(err)
	}
	var revisions appsv1.ControllerRevisionList
	err = p.objects.List(ctx, &revisions, client.InNamespace(ds.Namespace))
	if err != nil {
		return nil, false, fmt.Errorf("list ControllerRevisions: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.isApart(ds, &rollout.Status, revisions.Items):
		return nil, true, nil
	case rollout.Status.DaemonSetGeneration < ds.Generation:
		return nil, false, nil
	}
	s, err := p.survey(ctx, ds, node)
	if err != nil {
		return nil, false, err
	}
	return s.RulesOn(node, s.DaemonSet(ds.Namespace, ds.Name)), true, nil
}

// isApart is apart, compared once; p.mu is held.
func (p *Placements) isApart(ds *appsv1.DaemonSet, s *v1alpha1.DaemonSetRolloutStatus,
	all []appsv1.ControllerRevision) bool {
	var c compared
	c.of.generation, c.of.stored = ds.Generation, len(all)
	c.of.stable, c.of.target = s.StableRevision, s.TargetRevision
	if was, known := p.apart[ds.UID]; known && was.of == c.of {
		return was.apart
	}
	if len(p.apart) >= most {
		clear(p.apart)
	}
	c.apart = apart(ds, s, all)
	p.apart[ds.UID] = c
	return c.apart
}

// apart reports whether the stable revision, or the one that the rollout leads to, wants daemons on other nodes than
// the present template.
func apart(ds *appsv1.DaemonSet, s *v1alpha1.DaemonSetRolloutStatus, all []appsv1.ControllerRevision) bool {
	known := belongings.PlacementsOf(func(yield func(*appsv1.ControllerRevision) bool) {
		for i := range all {
			if belongings.OwnerOf(&all[i]) == ds.UID && !yield(&all[i]) {
				return
			}
		}
	})
	newest := placement.Compile(&ds.Spec.Template.Spec)
	for _, revision := range []string{s.StableRevision, s.TargetRevision} {
		rules := known.ByRevision[content.TemplateOf(revision)]
		if rules != nil && !rules.Same(newest) {
			return true
		}
	}
	return false
}

// survey is a look at all objects of which this DaemonSet and this node are two; p.mu is held.
func (p *Placements) survey(ctx context.Context, ds *appsv1.DaemonSet, node string) (*survey.Survey, error) {
	now := p.clock.Now()
	if s := p.last; s != nil && now.Sub(s.Now) < fresh && s.Node(node) != nil {
		if same := s.DaemonSet(ds.Namespace, ds.Name); same != nil && same.UID == ds.UID && same.Generation == ds.Generation {
			return s, nil
		}
	}
	var l lists
	for _, list := range []client.ObjectList{&l.nodes, &l.pods, &l.daemonSets, &l.revisions, &l.policies, &l.rollouts,
		&l.startups, &l.variants} {
		err := p.objects.List(ctx, list)
		if err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	s := survey.New(l.objects(now))
	same := s.DaemonSet(ds.Namespace, ds.Name)
	if s.Node(node) == nil || same == nil || same.UID != ds.UID {
		return nil, fmt.Errorf("node %s or DaemonSet %s has gone meanwhile", node, types.NamespacedName{
			Namespace: ds.Namespace, Name: ds.Name})
	}
	p.last = s
	return s, nil
}

// lists is what is read of a cluster.
type lists struct {
	nodes      corev1.NodeList
	pods       corev1.PodList
	daemonSets appsv1.DaemonSetList
	revisions  appsv1.ControllerRevisionList
	policies   v1alpha1.RolloutPolicyList
	rollouts   v1alpha1.DaemonSetRolloutList
	startups   v1alpha1.NodeStartupList
	variants   v1alpha1.DaemonSetVariantList
}

func (l *lists) objects(now time.Time) survey.Objects {
	return survey.Objects{
		Now: now, Locate: time.LoadLocation, Nodes: pointers(l.nodes.Items), Pods: pointers(l.pods.Items),
		DaemonSets: pointers(l.daemonSets.Items), Revisions: pointers(l.revisions.Items),
		Policies: pointers(l.policies.Items), Rollouts: pointers(l.rollouts.Items), Startups: pointers(l.startups.Items),
		Variants: pointers(l.variants.Items),
	}
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
