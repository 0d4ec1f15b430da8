package endpointslice

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// sliceManager is the manager of the slices of Services with a selector.
	sliceManager = "endpointslice-controller.k8s.io"
	// maxInSlice is how many endpoints a slice gets. A change of one endpoint is sent
	// to every node with the whole slice.
	maxInSlice = 100
)

// podSlices keeps the slices of Services that select pods.
type podSlices struct {
	reader   client.Reader
	library  *endpointslice.Reconciler
	tracker  *endpointsliceutil.EndpointSliceTracker
	triggers *endpointsliceutil.TriggerTimeTracker
}

func newSlices(reader client.Reader, cfg Config) *podSlices {
	tracker := endpointsliceutil.NewEndpointSliceTracker()
	return &podSlices{
		reader: reader, tracker: tracker, triggers: endpointsliceutil.NewTriggerTimeTracker(),
		library: endpointslice.NewReconciler(cfg.Client, nodes{reader}, maxInSlice, tracker, nil, cfg.Events, sliceManager,
			endpointslice.WithPreferSameTrafficDistributionEnabled(true)),
	}
}

// errStale ends an attempt that would decide from slices older than its own last
// writes; the next attempt sees newer ones.
var errStale = errors.New("the endpoint slices in the cache are older than what was written")

// Reconcile implements reconcile.Reconciler.
func (s *podSlices) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var svc corev1.Service
	err := s.reader.Get(ctx, key.NamespacedName, &svc)
	if apierrors.IsNotFound(err) {
		// The slices are owned by the Service and go with it.
		s.triggers.DeleteService(key.Namespace, key.Name)
		s.library.DeleteService(key.Namespace, key.Name)
		s.tracker.DeleteService(key.Namespace, key.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read service %s: %w", key, err)
	}
	if !followsPods(&svc) || svc.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	pods, err := selected(ctx, s.reader, &svc)
	if err != nil {
		return ctrl.Result{}, err
	}
	current, err := slicesOf(ctx, s.reader, key.NamespacedName, sliceManager)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.tracker.StaleSlices(&svc, current) {
		return ctrl.Result{}, fmt.Errorf("service %s: %w", key, errStale)
	}
	triggered := s.triggers.ComputeEndpointLastChangeTriggerTime(svc.Namespace, &svc, pods)
	err = s.library.Reconcile(klog.FromContext(ctx), &svc, pods, current, triggered)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("keep the endpoint slices of service %s: %w", key, err)
	}
	return ctrl.Result{}, nil
}

// nodes is the library's way to the cached nodes.
type nodes struct{ reader client.Reader }

var _ corelisters.NodeLister = nodes{}

// Get implements corelisters.NodeLister.
func (n nodes) Get(name string) (*corev1.Node, error) {
	var node corev1.Node
	if err := n.reader.Get(context.Background(), client.ObjectKey{Name: name}, &node); err != nil {
		return nil, err
	}
	return &node, nil
}

// List implements corelisters.NodeLister.
func (n nodes) List(selector labels.Selector) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := n.reader.List(context.Background(), &list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	out := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}
