// Package policystatus says in the status of a ValidatingAdmissionPolicy what is wrong
// with its expressions, as far as the types of the objects show it. A policy that asks
// for a field that there is not works in no request, and nobody would know before.
package policystatus

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Config is what the controller needs.
type Config struct {
	// Client writes the status, and reads what kinds there are and how they look.
	Client kubernetes.Interface
}

// Add lets a manager run the controller.
func Add(mgr manager.Manager, cfg Config) error {
	r := &reconciler{reader: mgr.GetClient(), client: cfg.Client, checker: &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: cfg.Client.Discovery()},
		RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(cfg.Client.Discovery())),
	}}
	err := ctrl.NewControllerManagedBy(mgr).Named("policystatus").For(&admissionv1.ValidatingAdmissionPolicy{}).Complete(r)
	if err != nil {
		return fmt.Errorf("add the policy status controller: %w", err)
	}
	return nil
}

type reconciler struct {
	reader  client.Reader
	client  kubernetes.Interface
	checker *validating.TypeChecker
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var policy admissionv1.ValidatingAdmissionPolicy
	if err := r.reader.Get(ctx, key.NamespacedName, &policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if policy.Status.ObservedGeneration >= policy.Generation {
		return ctrl.Result{}, nil
	}
	changed := policy.DeepCopy()
	warnings := r.checker.Check(changed)
	changed.Status.ObservedGeneration = policy.Generation
	changed.Status.TypeChecking = &admissionv1.TypeChecking{ExpressionWarnings: warnings}
	klog.FromContext(ctx).V(3).Info(
		"Writing what the types say of a policy", "validatingAdmissionPolicy", key.Name, "warnings", len(warnings),
	)
	_, err := r.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().UpdateStatus(
		ctx, changed, metav1.UpdateOptions{},
	)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // the change that was faster brings us back
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("write the status of policy %s: %w", key.Name, err)
	}
	return ctrl.Result{}, nil
}
