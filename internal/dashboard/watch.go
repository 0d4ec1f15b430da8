package dashboard

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rollout"
	"github.com/everynode/everynode/internal/change/survey"
)

// cluster is what is known of the cluster, kept up to date by watches.
type cluster struct {
	core kubernetes.Interface
	own  *client.Client

	nodes, pods, sets, revisions cache.SharedIndexInformer
	troubles                     *troubles
	// again is how long after policies could not be read that is tried again.
	again time.Duration

	mu sync.Mutex // guards own kinds, version and changed
	kinds
	// version counts what has changed; changed is closed at the next change.
	version uint64
	changed chan struct{}

	looking sync.Mutex // guards last, lastOf and views, and the use of last
	last    *survey.Survey
	lastOf  uint64
	views   views
}

// kinds are Everynode's own. Policies and rollouts are nil where the API does not have them, or does not show them;
// hidden says why. Startups and variants are nil where these alone are not there; unread says that variants may not be
// read.
type kinds struct {
	policies, rollouts, startups, variants cache.SharedIndexInformer
	hidden, unread                         string
}

// informers are those that there are.
func (k kinds) informers() (all []cache.SharedIndexInformer) {
	for _, informer := range []cache.SharedIndexInformer{k.policies, k.rollouts, k.startups, k.variants} {
		if informer != nil {
			all = append(all, informer)
		}
	}
	return all
}

// ownKinds are those that can be read by now.
func (c *cluster) ownKinds() kinds {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds
}

func (c *cluster) setOwnKinds(k kinds) {
	c.mu.Lock()
	c.kinds = k
	c.mu.Unlock()
	c.touch()
}

// lookAgain is how often it is tried to read kinds that the cluster does not have: their definitions may be added while
// the page is open.
const lookAgain = 15 * time.Second

// staleAfter is when a survey is made again though nothing has changed: verdicts depend on
// the time as well.
const staleAfter = 5 * time.Second

// patience is how long the cluster may take to show the first object of a kind.
const patience = 30 * time.Second

func newCluster(core kubernetes.Interface, own *client.Client) *cluster {
	c := &cluster{core: core, own: own, again: lookAgain, changed: make(chan struct{})}
	c.troubles = &troubles{of: map[string]trouble{}, changed: c.touch}
	return c
}

// lister lists and watches one kind.
type lister struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func listed[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error),
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error),
) lister {
	return lister{watch: watch, list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		out, err := list(ctx, o)
		if err != nil {
			return nil, err
		}
		return out, nil
	}}
}

// run watches until ctx ends; ready is called once all is known. It returns an error if a
// kind may not be read.
func (c *cluster) run(ctx context.Context, ready func()) error {
	core, apps := c.core.CoreV1(), c.core.AppsV1()
	var all []cache.SharedIndexInformer
	add := func(what string, l lister, example runtime.Object) (cache.SharedIndexInformer, error) {
		informer, err := c.informer(ctx, what, l, example)
		if err == nil {
			all = append(all, informer)
		}
		return informer, err
	}
	var err error
	c.nodes, err = add("nodes", listed(core.Nodes().List, core.Nodes().Watch), &corev1.Node{})
	if err != nil {
		return err
	}
	c.pods, err = add("pods", listed(core.Pods("").List, core.Pods("").Watch), &corev1.Pod{})
	if err != nil {
		return err
	}
	c.sets, err = add("DaemonSets", listed(apps.DaemonSets("").List, apps.DaemonSets("").Watch), &appsv1.DaemonSet{})
	if err != nil {
		return err
	}
	c.revisions, err = add(
		"ControllerRevisions",
		listed(apps.ControllerRevisions("").List, apps.ControllerRevisions("").Watch), &appsv1.ControllerRevision{},
	)
	if err != nil {
		return err
	}
	own, err := c.readOwnKinds(ctx)
	if err != nil {
		return err
	}
	c.setOwnKinds(own)
	var running sync.WaitGroup
	if own.hidden == "" {
		all = append(all, own.informers()...)
	} else {
		running.Go(func() { c.awaitOwnKinds(ctx, &running) })
	}
	for _, informer := range all {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	synced := make([]cache.InformerSynced, 0, len(all))
	for _, informer := range all {
		synced = append(synced, informer.HasSynced)
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		ready()
	}
	running.Wait()
	return nil
}

// informer watches a kind, once it is run. One object reports whether it may be read: an informer would try for ever.
func (c *cluster) informer(ctx context.Context, what string, l lister,
	example runtime.Object) (cache.SharedIndexInformer, error) {
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := l.list(soon, metav1.ListOptions{Limit: 1}); err != nil {
		return nil, rollout.Unread(what, err)
	}
	l = c.troubles.watched(what, l)
	informer := cache.NewSharedIndexInformer(
		&cache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}, example, 0, cache.Indexers{},
	)
	if err := informer.SetTransform(lean); err != nil {
		return nil, fmt.Errorf("watch %s: %w", what, err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.touch() }, UpdateFunc: func(any, any) { c.touch() }, DeleteFunc: func(any) { c.touch() },
	}); err != nil {
		return nil, fmt.Errorf("watch %s: %w", what, err)
	}
	return informer, nil
}

// readOwnKinds finds out whether policies and rollouts can be read. That the cluster does not have or show them is no
// error.
func (c *cluster) readOwnKinds(ctx context.Context) (k kinds, err error) {
	k.policies, err = c.informer(
		ctx, "RolloutPolicies", listed(c.own.RolloutPolicies("").List, c.own.RolloutPolicies("").Watch),
		&v1alpha1.RolloutPolicy{},
	)
	if err != nil {
		if hidden := rollout.Hidden(err); hidden != "" {
			return kinds{hidden: hidden}, nil
		}
		return kinds{}, err
	}
	k.rollouts, err = c.informer(
		ctx, "DaemonSetRollouts", listed(c.own.DaemonSetRollouts("").List, c.own.DaemonSetRollouts("").Watch),
		&v1alpha1.DaemonSetRollout{},
	)
	if err != nil {
		return kinds{}, err
	}
	k.startups, err = c.informer(ctx, "NodeStartups", listed(c.own.NodeStartups().List, c.own.NodeStartups().Watch),
		&v1alpha1.NodeStartup{})
	if err != nil && rollout.Hidden(err) != "" {
		err = nil // the page says that it cannot read the one that a node follows
	}
	if err != nil {
		return k, err
	}
	k.variants, err = c.informer(ctx, "DaemonSetVariants",
		listed(c.own.DaemonSetVariants("").List, c.own.DaemonSetVariants("").Watch), &v1alpha1.DaemonSetVariant{})
	if apierrors.IsForbidden(err) {
		k.unread = "DaemonSetVariants may not be read, so this is what holds if there are none"
	}
	if err != nil && rollout.Hidden(err) != "" {
		err = nil
	}
	return k, err
}

// awaitOwnKinds tries again and again to read policies and rollouts, until they are there, and watches them from then
// on.
func (c *cluster) awaitOwnKinds(ctx context.Context, running *sync.WaitGroup) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.again):
		}
		own, err := c.readOwnKinds(ctx)
		if err != nil || own.hidden != "" {
			continue // it is said that they are hidden; the other kinds say that the cluster is away
		}
		var synced []cache.InformerSynced
		for _, informer := range own.informers() {
			running.Go(func() { informer.RunWithContext(ctx) })
			synced = append(synced, informer.HasSynced)
		}
		if cache.WaitForCacheSync(ctx.Done(), synced...) {
			c.setOwnKinds(own)
		}
		return
	}
}

// lean takes out of an object what nobody looks at here.
func lean(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	return object, nil
}

func (c *cluster) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	close(c.changed)
	c.changed = make(chan struct{})
}

// at returns how far things are, and a channel that is closed when they are further.
func (c *cluster) at() (uint64, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version, c.changed
}

// look calls f with all that is known, and with what may not be read. Others wait for it.
func (c *cluster) look(f func(s *survey.Survey, hidden string) error) error {
	version, _ := c.at()
	now := time.Now()
	c.looking.Lock()
	defer c.looking.Unlock()
	if c.last == nil || c.lastOf != version || now.Sub(c.last.Now) > staleAfter {
		c.last, c.lastOf = c.survey(now), version
	}
	return f(c.last, c.ownKinds().hidden)
}

// survey puts in order all that is known. It is the caller's own.
func (c *cluster) survey(now time.Time) *survey.Survey {
	own := c.ownKinds()
	return survey.New(survey.Objects{
		Now: now, Locate: time.LoadLocation,
		Nodes: held[corev1.Node](c.nodes), Pods: held[corev1.Pod](c.pods), DaemonSets: held[appsv1.DaemonSet](c.sets),
		Revisions: held[appsv1.ControllerRevision](c.revisions),
		Policies:  held[v1alpha1.RolloutPolicy](own.policies), Rollouts: held[v1alpha1.DaemonSetRollout](own.rollouts),
		Startups: held[v1alpha1.NodeStartup](own.startups), Variants: held[v1alpha1.DaemonSetVariant](own.variants),
	})
}

// held are the objects of an informer.
func held[T any](informer cache.SharedIndexInformer) []*T {
	if informer == nil {
		return nil
	}
	list := informer.GetStore().List()
	out := make([]*T, 0, len(list))
	for _, object := range list {
		if typed, ok := object.(*T); ok {
			out = append(out, typed)
		}
	}
	return out
}
