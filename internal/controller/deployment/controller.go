// Package deployment rolls out Deployments through ReplicaSets. Package plan
// decides; apply.go acts.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/controller/deployment/plan"
	"github.com/everynode/everynode/internal/loop/ownwrites"
	"github.com/everynode/everynode/internal/objects/claim"
)

// EventSource is the component that the controller's events are from.
const EventSource = "deployment-controller"

// ownerIndex finds sets by claim.Key.
const ownerIndex = "deployment-controller/owner"

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config is what the controller needs.
type Config struct {
	// Client writes ReplicaSets and the status of Deployments. It must have no
	// client-side rate limit. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Workers is the number of Deployments looked after at a time; 5 if zero.
	Workers int
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("deployment: Client is required")
	}
	if cfg.Workers == 0 {
		cfg.Workers = 5
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &appsv1.ReplicaSet{}, ownerIndex,
		byOwner); err != nil {
		return fmt.Errorf("index ReplicaSets by their controllers: %w", err)
	}
	r := newReconciler(mgr.GetClient(), clientWriter{cfg.Client}, cfg)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("deployment").
		Watches(&appsv1.Deployment{}, r.wrote.Owners()).
		Watches(&appsv1.ReplicaSet{}, r.setHandler()).
		Watches(&corev1.Pod{}, r.podHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: cfg.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the Deployment controller: %w", err)
	}
	return nil
}

func byOwner(object client.Object) []string { return []string{claim.Key(object)} }

type reconciler struct {
	reader client.Reader // of shared objects, which are never changed
	writer writer
	events Recorder
	clock  clock.PassiveClock
	// wrote holds what the cache does not show yet of the sets that were written.
	wrote *ownwrites.Log[*appsv1.ReplicaSet]
}

func newReconciler(reader client.Reader, w writer, cfg Config) *reconciler {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &reconciler{
		reader: reader,
		writer: w,
		events: cfg.Events,
		clock:  cfg.Clock,
		wrote:  ownwrites.New[*appsv1.ReplicaSet](cfg.Clock),
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var d appsv1.Deployment
	if err := r.reader.Get(ctx, key.NamespacedName, &d); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read Deployment %s: %w", key, err)
	}
	in, err := r.gather(ctx, &d)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := plan.Decide(in)
	klog.FromContext(ctx).V(2).Info("Decided", "deployment", klog.KObj(&d), "reason", p.Reason)
	if done, err := r.apply(ctx, in, p); err != nil || !done {
		return ctrl.Result{}, err
	}
	if p.Next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(p.Next.Sub(in.Now), time.Millisecond)}, nil
}

// gather reads what the decision about a Deployment depends on, and takes and
// lets go ReplicaSets on the way.
func (r *reconciler) gather(ctx context.Context, d *appsv1.Deployment) (plan.Input, error) {
	in := plan.Input{Deployment: d, Now: r.clock.Now()}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		// The API server refuses such selectors.
		return in, fmt.Errorf("read the selector of Deployment %s: %w", klog.KObj(d), err)
	}
	own, err := r.sets(ctx, d.Namespace, string(d.UID))
	if err != nil {
		return in, err
	}
	nobodys, err := r.sets(ctx, d.Namespace, claim.Nobody)
	if err != nil {
		return in, err
	}
	defer r.wrote.Begin()()
	in.Sets, err = claim.Settle(claim.Owner[*appsv1.ReplicaSet]{
		Object: d, Kind: plan.Kind, Selector: selector,
		Live: func() (metav1.Object, error) { return r.writer.GetDeployment(ctx, d.Namespace, d.Name) },
		Patch: func(s *appsv1.ReplicaSet, patch []byte) (*appsv1.ReplicaSet, error) {
			return r.writer.PatchSet(ctx, s.Namespace, s.Name, patch)
		},
		Adopted: func(s *appsv1.ReplicaSet) { r.wrote.Created(d.UID, s) }, // new among the Deployment's own
	}, append(r.wrote.Overlay(d.UID, own), nobodys...))
	if err != nil {
		return in, fmt.Errorf("claim the ReplicaSets of Deployment %s: %w", klog.KObj(d), err)
	}
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return in, nil
	}
	var pods corev1.PodList
	if err := r.reader.List(ctx, &pods, client.InNamespace(d.Namespace),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return in, fmt.Errorf("list the pods of Deployment %s: %w", klog.KObj(d), err)
	}
	for i := range pods.Items {
		in.Pods = append(in.Pods, &pods.Items[i])
	}
	return in, nil
}

// sets lists the ReplicaSets that an owner controls.
func (r *reconciler) sets(ctx context.Context, namespace, owner string) ([]*appsv1.ReplicaSet, error) {
	var list appsv1.ReplicaSetList
	if err := r.reader.List(ctx, &list, client.InNamespace(namespace),
		client.MatchingFields{ownerIndex: owner}); err != nil {
		return nil, fmt.Errorf("list the ReplicaSets of %s in namespace %s: %w", owner, namespace, err)
	}
	out := make([]*appsv1.ReplicaSet, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}
