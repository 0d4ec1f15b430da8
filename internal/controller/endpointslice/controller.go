// Package endpointslice says where Services lead: it keeps the EndpointSlices of
// Services that select pods, their Endpoints for clients that know nothing newer,
// and the slices that mirror the Endpoints which a person wrote for a Service
// without a selector.
//
// k8s.io/endpointslice decides about the slices of pods, package plan about the rest.
package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Config is what the controllers need.
type Config struct {
	// Client writes slices. It must have no client-side rate limit. Required.
	Client kubernetes.Interface
	// Endpoints writes endpoints, and Mirrors the slices that mirror those of
	// people: three controllers, which have rights of their own. Client if nil.
	Endpoints, Mirrors kubernetes.Interface
	// Events is where users are told about slices. Required.
	Events record.EventRecorder
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
}

// Services are looked after one by one, these many at once.
const workers = 4

// Add puts the three controllers under the manager, which runs them while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil || cfg.Events == nil {
		return errors.New("endpointslice: Client and Events are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Endpoints == nil {
		cfg.Endpoints = cfg.Client
	}
	if cfg.Mirrors == nil {
		cfg.Mirrors = cfg.Client
	}
	reader, options := mgr.GetClient(), controller.Options{MaxConcurrentReconciles: workers}
	s := newSlices(reader, cfg)
	forSlices, forEndpoints := newSelectors(), newSelectors()
	err := ctrl.NewControllerManagedBy(mgr).Named("endpointslice").WithOptions(options).
		Watches(&corev1.Service{}, forSlices.serviceHandler()).
		Watches(&corev1.Pod{}, forSlices.podHandler()).
		Watches(&discoveryv1.EndpointSlice{}, s.sliceHandler()).
		Complete(newRested(s, cfg.Clock))
	if err != nil {
		return fmt.Errorf("add the controller of endpoint slices: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("endpoints").WithOptions(options).
		Watches(&corev1.Service{}, forEndpoints.serviceHandler()).
		Watches(&corev1.Pod{}, forEndpoints.podHandler()).
		Watches(&corev1.Endpoints{}, sameName()).
		Complete(newRested(&endpoints{reader: reader, writer: clientWriter{cfg.Endpoints}}, cfg.Clock))
	if err != nil {
		return fmt.Errorf("add the controller of endpoints: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("endpointslicemirroring").WithOptions(options).
		For(&corev1.Endpoints{}).
		Watches(&corev1.Service{}, sameName()).
		Watches(&discoveryv1.EndpointSlice{}, mirrorHandler()).
		Complete(&mirror{reader: reader, writer: clientWriter{cfg.Mirrors}})
	if err != nil {
		return fmt.Errorf("add the controller of mirrored slices: %w", err)
	}
	return nil
}

// selected lists the pods that a Service selects. They are shared: never change them.
func selected(ctx context.Context, reader client.Reader, svc *corev1.Service) ([]*corev1.Pod, error) {
	var list corev1.PodList
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	if err := reader.List(ctx, &list, client.InNamespace(svc.Namespace),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the pods of service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// slicesOf lists the slices of a Service that a manager keeps.
func slicesOf(ctx context.Context, reader client.Reader, key client.ObjectKey,
	manager string) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := reader.List(ctx, &list, client.InNamespace(key.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: key.Name, discoveryv1.LabelManagedBy: manager})
	if err != nil {
		return nil, fmt.Errorf("list the endpoint slices of service %s: %w", key, err)
	}
	out := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
		out[i].Ports = slices.Clone(out[i].Ports) // the library sorts them in place
	}
	return out, nil
}

// followsPods says whether pods make a Service's endpoints.
func followsPods(svc *corev1.Service) bool {
	return svc.Spec.Selector != nil && svc.Spec.Type != corev1.ServiceTypeExternalName
}
