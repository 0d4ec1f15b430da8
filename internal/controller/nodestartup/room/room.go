// Package room says for which daemons a node that starts keeps room: those that NodeStartups list, of the group that
// starts there and of later ones, and that have no pod there yet. The scheduler gives this room to no other pod of the
// same or a lower priority.
//
// A daemon is as large as the template of its DaemonSet is now, with the DaemonSetVariant that the node has now.
package room

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/resources"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

var kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// Keeper knows the daemons that nodes keep room for. Only one goroutine may use it, but for Changed. Call New.
type Keeper struct {
	reader client.Reader
	// changed tells that what was read may be another by now.
	changed atomic.Bool
	// listed are the daemons of NodeStartups, by name.
	listed map[string][]daemon
	// nodes are those that start, as they were looked at last.
	nodes map[string]*node
	// had are the variants of DaemonSets, by name, as they could be used last.
	had map[types.NamespacedName]had
}

// had is what a DaemonSet had.
type had struct {
	of  types.UID
	set *variant.Set
}

// daemon is a pod of a DaemonSet as its template is, and the group in which it is listed, from 1.
type daemon struct {
	set   types.UID
	group int
	rules *placement.Rules
	pod   *fit.Pod
	// varies says what it is like on each node, of is its DaemonSet; nil where no variant chooses that.
	varies *variant.Molds
	of     *appsv1.DaemonSet
}

// node is what follows from a node's labels, taints and size: the daemons that run there and start in its group or
// later.
type node struct {
	labels map[string]string
	taints []corev1.Taint
	size   resources.Amounts
	runs   []daemon
}

// most is how many nodes are kept in mind. Those that are deleted while they start are not told of.
const most = 20_000

// New returns a Keeper that reads NodeStartups, DaemonSets, their variants, PriorityClasses and Nodes, such as from a
// cache. Who changes these, but for Nodes, calls Changed, or Follow.
func New(reader client.Reader) *Keeper {
	return &Keeper{reader: reader, listed: map[string][]daemon{}, nodes: map[string]*node{},
		had: map[types.NamespacedName]had{}}
}

// Changed tells that NodeStartups, templates, variants or priorities may have changed. Any goroutine may call it.
func (k *Keeper) Changed() { k.changed.Store(true) }

// Informers is the part of a cache that tells of changes.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Follow has Changed called as the objects change.
func (k *Keeper) Follow(ctx context.Context, informers Informers) error {
	for _, kind := range []client.Object{&v1alpha1.NodeStartup{}, &appsv1.DaemonSet{}, &v1alpha1.DaemonSetVariant{},
		&schedulingv1.PriorityClass{}} {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T for daemons to come: %w", kind, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { k.Changed() },
			DeleteFunc: func(any) { k.Changed() },
			UpdateFunc: func(old, obj any) {
				if was, is := old.(client.Object), obj.(client.Object); was.GetUID() != is.GetUID() ||
					was.GetGeneration() != is.GetGeneration() || is.GetGeneration() == 0 ||
					is.GetDeletionTimestamp() != nil { // and no status of a DaemonSet
					k.Changed()
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T for daemons to come: %w", kind, err)
		}
	}
	return nil
}

// ToCome returns the daemons that a node keeps room for, as pods in the order in which they start; none for a node that
// has started. One for which there is no room as things are is left out: it would keep others away for nothing. The
// slice is the caller's, the pods are not.
func (k *Keeper) ToCome(ctx context.Context, n *fit.Node) ([]*fit.Pod, error) {
	gate := nodestartup.TaintOf(n.Taints)
	if gate == nil {
		delete(k.nodes, n.Name)
		return nil, nil
	}
	at, err := k.node(ctx, n, gate)
	if err != nil || len(at.runs) == 0 {
		return nil, err
	}
	taken, pods := n.Requested.Clone(), len(n.Pods)
	out := make([]*fit.Pod, 0, len(at.runs))
	for i := range at.runs {
		d := &at.runs[i]
		if n.Controlled[d.set] == 0 && pods < n.AllowedPods &&
			len(d.pod.Requests.Shortages(n.Allocatable, taken)) == 0 {
			taken.Add(d.pod.Requests)
			pods++
			out = append(out, d.pod)
		}
	}
	return out, nil
}

// node is what is known of a node with such a gate.
func (k *Keeper) node(ctx context.Context, n *fit.Node, gate *corev1.Taint) (*node, error) {
	if k.changed.Swap(false) || len(k.nodes) > most {
		clear(k.listed)
		clear(k.nodes)
		k.forget(ctx)
	}
	known := k.nodes[n.Name]
	if known != nil && slices.Equal(known.taints, n.Taints) && maps.Equal(known.labels, n.Labels) &&
		known.size.Equal(n.Allocatable) {
		return known, nil
	}
	at, _ := nodestartup.PlaceOf(gate.Value)
	all, err := k.list(ctx, at.Startup)
	if err != nil {
		return nil, err
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	object.Spec.Taints = n.Taints
	known = &node{labels: n.Labels, taints: n.Taints, size: n.Allocatable}
	varied := false
	for _, d := range all {
		if d.group >= at.Group && plan.Runs(d.rules, object) {
			known.runs = append(known.runs, d)
			varied = varied || d.varies != nil
		}
	}
	is := true
	if varied {
		is, err = k.vary(ctx, n, known)
	}
	if is { // else it is looked at again: what is read is behind, or ahead
		k.nodes[n.Name] = known
	}
	return known, err
}

// forget drops what DaemonSets had that are gone.
func (k *Keeper) forget(ctx context.Context) {
	for name, is := range k.had {
		var ds appsv1.DaemonSet
		err := k.reader.Get(ctx, name, &ds)
		if apierrors.IsNotFound(err) || err == nil && ds.UID != is.of {
			delete(k.had, name)
		}
	}
}

// vary has the daemons that run on a node be as large as their variants have them there. One of which no pod can be
// made is none. It reports whether the Node that was read is the one that was asked about.
func (k *Keeper) vary(ctx context.Context, n *fit.Node, into *node) (is bool, err error) {
	var read corev1.Node
	err = k.reader.Get(ctx, types.NamespacedName{Name: n.Name}, &read)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	at, runs := variant.OfNode(&read), into.runs[:0]
	for _, d := range into.runs {
		if d.varies == nil {
			runs = append(runs, d)
			continue
		}
		o := d.varies.Of(&at)
		if o.Err != nil {
			continue
		}
		d.pod, err = k.pod(ctx, d.of, o.Spec())
		if err != nil {
			return false, err
		}
		runs = append(runs, d)
	}
	into.runs = runs
	return maps.Equal(read.Labels, n.Labels) && resources.FromList(read.Status.Allocatable).Equal(n.Allocatable), nil
}

// list are the daemons of a NodeStartup, in the order in which they start; none if there is no such one.
func (k *Keeper) list(ctx context.Context, name string) ([]daemon, error) {
	all, known := k.listed[name]
	if known {
		return all, nil
	}
	var s v1alpha1.NodeStartup
	err := k.reader.Get(ctx, types.NamespacedName{Name: name}, &s)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read NodeStartup %s: %w", name, err)
	}
	for i := range s.Spec.Groups {
		for _, one := range s.Spec.Groups[i].DaemonSets {
			d, err := k.daemon(ctx, nodestartup.NameOf(one))
			switch {
			case err != nil:
				return nil, err
			case d != nil:
				d.group = i + 1
				all = append(all, *d)
			}
		}
	}
	k.listed[name] = all
	return all, nil
}

// daemon is that of a DaemonSet; nil if there is none, or it is on its way out.
func (k *Keeper) daemon(ctx context.Context, name types.NamespacedName) (*daemon, error) {
	var ds appsv1.DaemonSet
	err := k.reader.Get(ctx, name, &ds)
	if err != nil || ds.DeletionTimestamp != nil {
		return nil, client.IgnoreNotFound(err)
	}
	pod, err := k.pod(ctx, &ds, ds.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	d := &daemon{set: ds.UID, rules: placement.Compile(&ds.Spec.Template.Spec), pod: pod, of: &ds}
	d.varies, err = k.variants(ctx, &ds)
	return d, err
}

// variants are what the pods of a DaemonSet are like by the variants that choose it; nil if none does. Where one of
// them is not to be used, or too many choose it, it keeps those that it had, as far as they are known.
func (k *Keeper) variants(ctx context.Context, ds *appsv1.DaemonSet) (*variant.Molds, error) {
	var list v1alpha1.DaemonSetVariantList
	err := k.reader.List(ctx, &list, client.InNamespace(ds.Namespace))
	if err != nil {
		return nil, fmt.Errorf("list the DaemonSetVariants of namespace %s: %w", ds.Namespace, err)
	}
	all := make([]*v1alpha1.DaemonSetVariant, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	chosen, err := variant.Choosing(slices.Values(all), ds, variant.Check)
	var set *variant.Set
	if err == nil {
		set, err = variant.NewSet(chosen)
	}
	name := types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name}
	switch {
	case err != nil: // the controller tells of it
		if known := k.had[name]; known.of == ds.UID {
			set = known.set
		}
	case set == nil:
		delete(k.had, name)
	default:
		k.had[name] = had{ds.UID, set}
	}
	if set == nil {
		return nil, nil
	}
	return set.On(&ds.Spec.Template), nil
}

// pod is a daemon's with this spec, which is not changed.
func (k *Keeper) pod(ctx context.Context, ds *appsv1.DaemonSet, spec corev1.PodSpec) (*fit.Pod, error) {
	priority, err := k.priority(ctx, &spec)
	if err != nil {
		return nil, err
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: ds.Namespace, Name: ds.Name, UID: "to come " + ds.UID, Labels: ds.Spec.Template.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, kind)},
	}}
	p.Spec = spec
	p.Spec.Priority = &priority
	return fit.NewPod(p), nil
}

// priority is what admission will give to a pod with this spec.
func (k *Keeper) priority(ctx context.Context, spec *corev1.PodSpec) (int32, error) {
	if spec.Priority != nil {
		return *spec.Priority, nil
	}
	if spec.PriorityClassName != "" {
		var class schedulingv1.PriorityClass
		err := k.reader.Get(ctx, types.NamespacedName{Name: spec.PriorityClassName}, &class)
		return class.Value, client.IgnoreNotFound(err)
	}
	var all schedulingv1.PriorityClassList
	err := k.reader.List(ctx, &all)
	if err != nil {
		return 0, fmt.Errorf("list PriorityClasses: %w", err)
	}
	for i := range all.Items {
		if all.Items[i].GlobalDefault {
			return all.Items[i].Value, nil
		}
	}
	return 0, nil
}
