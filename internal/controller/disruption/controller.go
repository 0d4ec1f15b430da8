// Package disruption keeps the status of PodDisruptionBudgets: how many of its pods
// a budget allows to be evicted now. Package plan decides; eviction spends.
package disruption

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/controller/disruption/plan"
)

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config is what the controller needs.
type Config struct {
	// Client writes the status of budgets. It must have no client-side rate limit. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("disruption: Client is required")
	}
	r := newReconciler(mgr.GetClient(), clientWriter{cfg.Client}, cfg)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("disruption").
		For(&policyv1.PodDisruptionBudget{}).
		Watches(&corev1.Pod{}, r.podHandler()).
		Watches(&appsv1.DaemonSet{}, r.ownerHandler()).
		Watches(&appsv1.ReplicaSet{}, r.ownerHandler()).
		Watches(&corev1.ReplicationController{}, r.ownerHandler()).
		Watches(&appsv1.Deployment{}, r.ownerHandler()).
		Watches(&appsv1.StatefulSet{}, r.ownerHandler()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the disruption controller: %w", err)
	}
	return nil
}

type reconciler struct {
	reader client.Reader // of shared objects, which are never changed
	writer writer
	events Recorder
	clock  clock.PassiveClock
}

func newReconciler(reader client.Reader, w writer, cfg Config) *reconciler {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &reconciler{reader: reader, writer: w, events: cfg.Events, clock: cfg.Clock}
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var budget policyv1.PodDisruptionBudget
	if err := r.reader.Get(ctx, key.NamespacedName, &budget); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read budget %s: %w", key, err)
	}
	in, err := r.gather(ctx, &budget)
	if err != nil {
		return ctrl.Result{}, err
	}
	result := plan.Decide(in)
	if err := r.apply(ctx, in, result); err != nil {
		return ctrl.Result{}, err
	}
	if result.Next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(result.Next.Sub(in.Now), time.Millisecond)}, nil
}

// gather reads what the decision about a budget depends on.
func (r *reconciler) gather(ctx context.Context, budget *policyv1.PodDisruptionBudget) (plan.Input, error) {
	in := plan.Input{Budget: budget, Now: r.clock.Now()}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		// The API server refuses such selectors.
		return in, fmt.Errorf("read the selector of budget %s: %w", klog.KObj(budget), err)
	}
	var pods corev1.PodList
	if err := r.reader.List(ctx, &pods, client.InNamespace(budget.Namespace), client.MatchingLabelsSelector{
		Selector: selector,
	}); err != nil {
		return in, fmt.Errorf("list the pods of budget %s: %w", klog.KObj(budget), err)
	}
	in.Pods = pods.Items
	if !plan.NeedsOwners(budget) {
		return in, nil
	}
	in.Owners, err = r.owners(ctx, budget.Namespace, in.Pods)
	return in, err
}

// owners reads the controllers that pods name, each once.
func (r *reconciler) owners(ctx context.Context, namespace string, pods []corev1.Pod) (plan.Owners, error) {
	o := plan.Owners{
		DaemonSets: map[string]*appsv1.DaemonSet{}, ReplicaSets: map[string]*appsv1.ReplicaSet{},
		Deployments:  map[string]*appsv1.Deployment{},
		StatefulSets: map[string]*appsv1.StatefulSet{}, ReplicationControllers: map[string]*corev1.ReplicationController{},
	}
	for i := range pods {
		kind, name := plan.Controller(&pods[i])
		var err error
		switch kind {
		case plan.KindDaemonSet:
			err = read(ctx, r.reader, namespace, name, o.DaemonSets, &appsv1.DaemonSet{})
		case plan.KindStatefulSet:
			err = read(ctx, r.reader, namespace, name, o.StatefulSets, &appsv1.StatefulSet{})
		case plan.KindReplicationController:
			err = read(ctx, r.reader, namespace, name, o.ReplicationControllers, &corev1.ReplicationController{})
		case plan.KindReplicaSet:
			if err = read(ctx, r.reader, namespace, name, o.ReplicaSets, &appsv1.ReplicaSet{}); err != nil ||
				o.ReplicaSets[name] == nil {
				break
			}
			if above, deployment := plan.Controller(o.ReplicaSets[name]); above == plan.KindDeployment {
				err = read(ctx, r.reader, namespace, deployment, o.Deployments, &appsv1.Deployment{})
			}
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// read puts an object into a map unless it was read before; nil means that there is none.
func read[T client.Object](
	ctx context.Context, reader client.Reader, namespace, name string, into map[string]T, object T,
) error {
	if _, done := into[name]; done {
		return nil
	}
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %T %s/%s: %w", object, namespace, name, err)
	}
	if err != nil {
		var none T
		object = none
	}
	into[name] = object
	return nil
}
