package bootstrap

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// Ensure creates what is missing and brings default roles and bindings up to date:
// it adds missing rules and subjects, keeps what administrators added, and leaves
// alone what is annotated with rbac.authorization.kubernetes.io/autoupdate=false. It
// may run at every start, and at the same time on several servers; it needs the
// rights of system:masters.
func Ensure(ctx context.Context, client kubernetes.Interface) error {
	for _, step := range []func(context.Context, kubernetes.Interface) error{
		ensureNamespaces, ensurePriorityClasses, ensureRoles, ensureBindings,
	} {
		if err := step(ctx, client); err != nil {
			return fmt.Errorf("bootstrap the cluster: %w", err)
		}
	}
	return nil
}

// parallelWrites bounds the writes under way; the first start makes about
// seventy objects, each of which waits for the disk.
const parallelWrites = 8

func ensureNamespaces(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range Namespaces() {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return nil
}

func ensurePriorityClasses(ctx context.Context, client kubernetes.Interface) error {
	classes := client.SchedulingV1().PriorityClasses()
	for _, want := range PriorityClasses() {
		_, err := classes.Get(ctx, want.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = classes.Create(ctx, &want, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("ensure priority class %s: %w", want.Name, err)
		}
	}
	return nil
}

func ensureRoles(ctx context.Context, client kubernetes.Interface) error {
	var options []*reconciliation.ReconcileRoleOptions
	for _, want := range ClusterRoles() {
		options = append(options, &reconciliation.ReconcileRoleOptions{
			Role:   reconciliation.ClusterRoleRuleOwner{ClusterRole: &want},
			Client: &sparing{RuleOwnerModifier: reconciliation.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()}},
		})
	}
	for _, want := range Roles() {
		options = append(options, &reconciliation.ReconcileRoleOptions{
			Role: reconciliation.RoleRuleOwner{Role: &want},
			Client: &sparing{RuleOwnerModifier: reconciliation.RoleModifier{
				Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces(),
			}},
		})
	}
	return each(ctx, options, func(o *reconciliation.ReconcileRoleOptions) error {
		o.Confirm = true
		if _, err := o.Run(); err != nil {
			return fmt.Errorf("ensure %s: %w", title("role", o.Role), err)
		}
		return nil
	})
}

func ensureBindings(ctx context.Context, client kubernetes.Interface) error {
	var options []*reconciliation.ReconcileRoleBindingOptions
	for _, want := range ClusterRoleBindings() {
		options = append(options, &reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &want},
			Client:      reconciliation.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()},
		})
	}
	for _, want := range RoleBindings() {
		options = append(options, &reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: reconciliation.RoleBindingAdapter{RoleBinding: &want},
			Client: reconciliation.RoleBindingClientAdapter{
				Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces(),
			},
		})
	}
	return each(ctx, options, func(o *reconciliation.ReconcileRoleBindingOptions) error {
		o.Confirm = true
		if _, err := o.Run(); err != nil {
			return fmt.Errorf("ensure %s: %w", title("role binding", o.RoleBinding), err)
		}
		return nil
	})
}

// named is what roles and bindings have in common.
type named interface {
	GetNamespace() string
	GetName() string
}

// title names an object in an error.
func title(kind string, o named) string {
	if o.GetNamespace() == "" {
		return "cluster " + kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// each runs f for every item, a few at a time, again where another server or a user
// was faster, and joins the errors.
func each[T any](ctx context.Context, items []T, f func(T) error) error {
	errs := make([]error, len(items))
	workqueue.ParallelizeUntil(ctx, parallelWrites, len(items), func(i int) {
		errs[i] = retry.RetryOnConflict(retry.DefaultBackoff, func() error { return f(items[i]) })
	})
	return errors.Join(append(errs, ctx.Err())...)
}
