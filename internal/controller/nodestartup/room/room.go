// Package room says for which daemons a node that starts keeps room: those that NodeStartups list, of the group that
// starts there and of later ones, and that have no pod there yet. The scheduler gives this room to no other pod of the
// same or a lower priority.
//
// A daemon is as large as the template of its DaemonSet is now.
package room

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

var kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// Keeper knows the daemons that nodes keep room for. Only one goroutine may use it. Call New.
type Keeper struct {
	reader client.Reader
	known  map[types.NamespacedName]*daemon
}

// daemon is a pod of a DaemonSet as its template is.
type daemon struct {
	set        types.UID
	generation int64
	rules      *placement.Rules
	pod        *fit.Pod
}

// New returns a Keeper that reads NodeStartups, DaemonSets and PriorityClasses, such as from a cache.
func New(reader client.Reader) *Keeper {
	return &Keeper{reader: reader, known: map[types.NamespacedName]*daemon{}}
}

// ToCome returns the daemons that a node keeps room for, as pods in the order in which they start; none for a node that
// has started. One for which there is no room as things are is left out: it would keep others away for nothing. The
// slice is the caller's, the pods are not.
func (k *Keeper) ToCome(ctx context.Context, n *fit.Node) ([]*fit.Pod, error) {
	gate := nodestartup.TaintOf(n.Taints)
	if gate == nil {
		return nil, nil
	}
	at, _ := nodestartup.PlaceOf(gate.Value)
	var s v1alpha1.NodeStartup
	err := k.reader.Get(ctx, types.NamespacedName{Name: at.Startup}, &s)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	node.Spec.Taints = n.Taints
	taken, pods := n.Requested.Clone(), len(n.Pods)
	var out []*fit.Pod
	for i := max(at.Group-1, 0); i < len(s.Spec.Groups); i++ {
		for _, listed := range s.Spec.Groups[i].DaemonSets {
			d, err := k.daemon(ctx, nodestartup.NameOf(listed))
			switch {
			case err != nil:
				return nil, err
			case d == nil, n.Controlled[d.set] > 0, !plan.Runs(d.rules, node):
				continue
			}
			if pods < n.AllowedPods && len(d.pod.Requests.Shortages(n.Allocatable, taken)) == 0 {
				taken.Add(d.pod.Requests)
				pods++
				out = append(out, d.pod)
			}
		}
	}
	return out, nil
}

// daemon is that of a DaemonSet; nil if there is none, or it is on its way out.
func (k *Keeper) daemon(ctx context.Context, name types.NamespacedName) (*daemon, error) {
	var ds appsv1.DaemonSet
	err := k.reader.Get(ctx, name, &ds)
	if err != nil || ds.DeletionTimestamp != nil {
		delete(k.known, name)
		return nil, client.IgnoreNotFound(err)
	}
	d := k.known[name]
	if d != nil && d.set == ds.UID && d.generation == ds.Generation {
		return d, nil
	}
	priority, err := k.priority(ctx, &ds.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: ds.Namespace, Name: ds.Name, UID: "to come " + ds.UID, Labels: ds.Spec.Template.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&ds, kind)},
	}}
	p.Spec = ds.Spec.Template.Spec
	p.Spec.Priority = &priority
	d = &daemon{set: ds.UID, generation: ds.Generation, rules: placement.Compile(&p.Spec), pod: fit.NewPod(p)}
	k.known[name] = d
	return d, nil
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
