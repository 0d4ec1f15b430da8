// Package servicecidr says of ServiceCIDRs whether addresses are given out of them, and keeps them while Services have
// such addresses. Package servicenetwork decides which have.
package servicecidr

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/everynode/everynode/internal/network/servicenetwork"
)

// EventSource is the component that the controller's events are from.
const EventSource = "service-cidrs-controller"

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config is what the controller needs.
type Config struct {
	// Client writes ServiceCIDRs, and reads what must not be stale. Required.
	Client kubernetes.Interface
	// Configured is the network that the server was started with: that of the default ServiceCIDR. Required.
	Configured netip.Prefix
	// Events may be nil.
	Events Recorder
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil || !cfg.Configured.IsValid() {
		return errors.New("servicecidr: Client and Configured are required")
	}
	c := controller{reader: mgr.GetClient(), cfg: cfg}
	err := ctrl.NewControllerManagedBy(mgr).Named("servicecidr").For(&networkingv1.ServiceCIDR{}).
		// One more may have what another one holds; one address less may be the last.
		Watches(&networkingv1.ServiceCIDR{}, handler.EnqueueRequestsFromMapFunc(c.leaving)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(c.leaving), builder.WithPredicates(givesBack)).
		Complete(c)
	if err != nil {
		return fmt.Errorf("add the controller of ServiceCIDRs: %w", err)
	}
	return nil
}

// givesBack lets those changes of Services through that may give back an address.
var givesBack = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.Equal(e.ObjectOld.(*corev1.Service).Spec.ClusterIPs, e.ObjectNew.(*corev1.Service).Spec.ClusterIPs)
	},
}

// recheck is when it is looked again at what the cache and the API tell differently.
const recheck = time.Second

type controller struct {
	reader client.Reader // of shared objects, which are never changed
	cfg    Config
}

// leaving are the ServiceCIDRs that somebody wants to go.
func (c controller) leaving(ctx context.Context, _ client.Object) (out []ctrl.Request) {
	var all networkingv1.ServiceCIDRList
	if err := c.reader.List(ctx, &all); err != nil {
		return nil // The cache has ended, and everything with it.
	}
	for i := range all.Items {
		if all.Items[i].DeletionTimestamp != nil {
			out = append(out, ctrl.Request{NamespacedName: types.NamespacedName{Name: all.Items[i].Name}})
		}
	}
	return out
}

// Reconcile implements reconcile.Reconciler.
func (c controller) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var cidr networkingv1.ServiceCIDR
	err := c.reader.Get(ctx, key.NamespacedName, &cidr)
	switch {
	case apierrors.IsNotFound(err) && key.Name == servicenetwork.Default:
		return ctrl.Result{}, c.makeDefault(ctx)
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	case cidr.DeletionTimestamp != nil:
		return c.letGo(ctx, &cidr)
	}
	c.compare(&cidr)
	return ctrl.Result{}, c.keep(ctx, &cidr)
}

// compare tells when the default ServiceCIDR is another network than that of the server's flag.
func (c controller) compare(cidr *networkingv1.ServiceCIDR) {
	if cidr.Name == servicenetwork.Default && !slices.Contains(cidr.Spec.CIDRs, c.cfg.Configured.String()) &&
		c.cfg.Events != nil {
		c.cfg.Events.Eventf(cidr, corev1.EventTypeWarning, "KubernetesDefaultServiceCIDRInconsistent",
			"Services get addresses of %v, and the server was started with --service-cidr %s: start it with what is there, or "+
				"make a second ServiceCIDR to have more addresses", cidr.Spec.CIDRs, c.cfg.Configured)
	}
}

// letGo has a ServiceCIDR vanish, unless Services have addresses that are of no other one.
func (c controller) letGo(ctx context.Context, cidr *networkingv1.ServiceCIDR) (ctrl.Result, error) {
	if !slices.Contains(cidr.Finalizers, servicenetwork.Finalizer) {
		return ctrl.Result{}, nil
	}
	held, err := c.held(ctx, cached{c.reader}, cidr.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if held {
		return ctrl.Result{}, c.say(ctx, cidr, terminating)
	}
	// No Service takes an address of it since somebody wants it to go. Those that did before, the cache may not know yet.
	if held, err = c.held(ctx, live{c.cfg.Client}, cidr.Name); err != nil || held {
		return ctrl.Result{RequeueAfter: recheck}, err
	}
	return ctrl.Result{}, c.release(ctx, cidr)
}

// facts are all ServiceCIDRs and Services.
type facts interface {
	all(ctx context.Context) ([]networkingv1.ServiceCIDR, []corev1.Service, error)
}

func (c controller) held(ctx context.Context, from facts, name string) (bool, error) {
	cidrs, services, err := from.all(ctx)
	if err != nil {
		return false, err
	}
	pointers := make([]*networkingv1.ServiceCIDR, 0, len(cidrs))
	for i := range cidrs {
		pointers = append(pointers, &cidrs[i])
	}
	var addresses []netip.Addr
	for i := range services {
		for _, text := range services[i].Spec.ClusterIPs {
			if ip, err := netip.ParseAddr(text); err == nil {
				addresses = append(addresses, ip)
			}
		}
	}
	_, held := servicenetwork.Stranded(servicenetwork.Of(pointers, c.cfg.Configured), name, addresses)
	return held, nil
}

// cached are the facts as the cache has them, and live as the API has them now.
type (
	cached struct{ client.Reader }
	live   struct{ kubernetes.Interface }
)

func (r cached) all(ctx context.Context) ([]networkingv1.ServiceCIDR, []corev1.Service, error) {
	var cidrs networkingv1.ServiceCIDRList
	var services corev1.ServiceList
	if err := errors.Join(r.List(ctx, &cidrs), r.List(ctx, &services)); err != nil {
		return nil, nil, fmt.Errorf("read ServiceCIDRs and Services: %w", err)
	}
	return cidrs.Items, services.Items, nil
}

func (r live) all(ctx context.Context) ([]networkingv1.ServiceCIDR, []corev1.Service, error) {
	cidrs, err := r.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("read ServiceCIDRs: %w", err)
	}
	services, err := r.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("read Services: %w", err)
	}
	return cidrs.Items, services.Items, nil
}
