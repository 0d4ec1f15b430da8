// Package clusterroleaggregation fills in the rules of cluster roles that collect
// the rules of others, such as admin, edit and view: it decides with plan, which
// is pure, and writes the result.
package clusterroleaggregation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Config is what the controller needs.
type Config struct {
	// Client writes roles; it needs the verb escalate on them.
	Client kubernetes.Interface
}

// Add lets a manager run the controller.
func Add(mgr manager.Manager, cfg Config) error {
	r := &reconciler{reader: mgr.GetClient(), client: cfg.Client}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("clusterroleaggregation").
		Watches(&rbacv1.ClusterRole{}, handler.EnqueueRequestsFromMapFunc(r.collectors)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the cluster role aggregation controller: %w", err)
	}
	return nil
}

type reconciler struct {
	reader client.Reader
	client kubernetes.Interface
}

// collectors names every aggregated role: a changed role may have left one as
// well as joined one, and there are few.
func (r *reconciler) collectors(ctx context.Context, _ client.Object) []reconcile.Request {
	var roles rbacv1.ClusterRoleList
	if err := r.reader.List(ctx, &roles); err != nil {
		klog.FromContext(ctx).Error(err, "Could not list cluster roles")
		return nil
	}
	var requests []reconcile.Request
	for i := range roles.Items {
		if roles.Items[i].AggregationRule != nil {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: roles.Items[i].Name}})
		}
	}
	return requests
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var roles rbacv1.ClusterRoleList
	if err := r.reader.List(ctx, &roles); err != nil {
		return ctrl.Result{}, fmt.Errorf("list cluster roles: %w", err)
	}
	i := slices.IndexFunc(roles.Items, func(role rbacv1.ClusterRole) bool { return role.Name == key.Name })
	if i < 0 || roles.Items[i].AggregationRule == nil {
		return ctrl.Result{}, nil
	}
	rules, err := plan(&roles.Items[i], roles.Items)
	if err != nil {
		return ctrl.Result{}, reconcile.TerminalError(fmt.Errorf("collect the rules of cluster role %s: %w", key.Name, err))
	}
	if equality.Semantic.DeepEqual(rules, roles.Items[i].Rules) {
		return ctrl.Result{}, nil
	}
	role := roles.Items[i].DeepCopy()
	role.Rules = rules
	klog.FromContext(ctx).V(3).Info("Writing the collected rules", "clusterRole", key.Name, "rules", len(rules))
	_, err = r.client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // the change that was faster brings us back
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("update cluster role %s: %w", key.Name, err)
	}
	return ctrl.Result{}, nil
}

// plan collects the rules of all roles that a role's selectors choose, in the
// order of the selectors and then of names, each rule once.
func plan(role *rbacv1.ClusterRole, all []rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range sorted {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}
