package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
)

// Ensure creates what is missing and brings default roles, bindings and priority
// classes up to date. It may run at every start, and at the same time on several
// servers; it needs the rights of system:masters.
func Ensure(ctx context.Context, client kubernetes.Interface) error {
	for _, step := range []func(context.Context, kubernetes.Interface) error{
		ensureNamespaces, ensurePriorityClasses, ensureClusterRoles, ensureClusterRoleBindings, ensureRoles,
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
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return nil
}

func ensurePriorityClasses(ctx context.Context, client kubernetes.Interface) error {
	classes := client.SchedulingV1().PriorityClasses()
	return each(ctx, PriorityClasses(), func(ctx context.Context, want *schedulingv1.PriorityClass) error {
		err := reconcile(ctx, classes, want, func(*schedulingv1.PriorityClass) bool { return false })
		if err != nil {
			return fmt.Errorf("ensure priority class %s: %w", want.Name, err)
		}
		return nil
	})
}

func ensureClusterRoles(ctx context.Context, client kubernetes.Interface) error {
	roles := client.RbacV1().ClusterRoles()
	list, err := roles.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list cluster roles: %w", err)
	}
	stale := slices.DeleteFunc(ClusterRoles(), func(want rbacv1.ClusterRole) bool {
		i := slices.IndexFunc(list.Items, func(r rbacv1.ClusterRole) bool { return r.Name == want.Name })
		return i >= 0 && !mergeClusterRole(list.Items[i].DeepCopy(), &want)
	})
	return each(ctx, stale, func(ctx context.Context, want *rbacv1.ClusterRole) error {
		err := reconcile(ctx, roles, want, func(existing *rbacv1.ClusterRole) bool { return mergeClusterRole(existing, want) })
		if err != nil {
			return fmt.Errorf("ensure cluster role %s: %w", want.Name, err)
		}
		return nil
	})
}

func ensureClusterRoleBindings(ctx context.Context, client kubernetes.Interface) error {
	bindings := client.RbacV1().ClusterRoleBindings()
	list, err := bindings.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list cluster role bindings: %w", err)
	}
	stale := slices.DeleteFunc(ClusterRoleBindings(), func(want rbacv1.ClusterRoleBinding) bool {
		i := slices.IndexFunc(list.Items, func(b rbacv1.ClusterRoleBinding) bool { return b.Name == want.Name })
		return i >= 0 && list.Items[i].RoleRef == want.RoleRef && !mergeClusterRoleBinding(list.Items[i].DeepCopy(), &want)
	})
	return each(ctx, stale, func(ctx context.Context, want *rbacv1.ClusterRoleBinding) error {
		err := dropForeignRoleRef(ctx, client, want)
		if err == nil {
			err = reconcile(ctx, bindings, want, func(existing *rbacv1.ClusterRoleBinding) bool { return mergeClusterRoleBinding(existing, want) })
		}
		if err != nil {
			return fmt.Errorf("ensure cluster role binding %s: %w", want.Name, err)
		}
		return nil
	})
}

// ensureRoles makes the roles and bindings that are good in one namespace.
func ensureRoles(ctx context.Context, client kubernetes.Interface) error {
	for _, want := range Roles() {
		err := reconcile(ctx, client.RbacV1().Roles(want.Namespace), &want, func(existing *rbacv1.Role) bool { return mergeRole(existing, &want) })
		if err != nil {
			return fmt.Errorf("ensure role %s/%s: %w", want.Namespace, want.Name, err)
		}
	}
	for _, want := range RoleBindings() {
		merge := func(existing *rbacv1.RoleBinding) bool { return mergeRoleBinding(existing, &want) }
		if err := reconcile(ctx, client.RbacV1().RoleBindings(want.Namespace), &want, merge); err != nil {
			return fmt.Errorf("ensure role binding %s/%s: %w", want.Namespace, want.Name, err)
		}
	}
	return nil
}

// each runs f for every item, a few at a time, and joins the errors.
func each[T any](ctx context.Context, items []T, f func(context.Context, *T) error) error {
	errs := make([]error, len(items))
	workqueue.ParallelizeUntil(ctx, parallelWrites, len(items), func(i int) { errs[i] = f(ctx, &items[i]) })
	return errors.Join(append(errs, ctx.Err())...)
}

// api is the part of a typed client that an object needs to be kept up to date.
type api[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
}

// reconcile creates want, or changes the existing object as merge says. merge
// gets a copy that it may change, and reports whether it did.
func reconcile[T metav1.Object](ctx context.Context, client api[T], want T, merge func(existing T) bool) error {
	return retry.OnError(retry.DefaultBackoff, lostRace, func() error {
		existing, err := client.Get(ctx, want.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, want, metav1.CreateOptions{})
			return err
		}
		if err != nil || !merge(existing) {
			return err
		}
		_, err = client.Update(ctx, existing, metav1.UpdateOptions{})
		return err
	})
}

// lostRace tells that another server or a user was faster; another look decides.
func lostRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// dropForeignRoleRef deletes a default binding that refers to another role: the
// reference of a binding cannot be changed.
func dropForeignRoleRef(ctx context.Context, client kubernetes.Interface, want *rbacv1.ClusterRoleBinding) error {
	existing, err := client.RbacV1().ClusterRoleBindings().Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if existing.RoleRef == want.RoleRef || isProtected(existing) {
		return nil
	}
	err = client.RbacV1().ClusterRoleBindings().Delete(ctx, want.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &existing.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("replace it, it refers to %s %s: %w", existing.RoleRef.Kind, existing.RoleRef.Name, err)
	}
	return nil
}

func isProtected(obj metav1.Object) bool {
	return obj.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false"
}

// mergeMeta adds missing labels and annotations; a user's value stays.
func mergeMeta(existing, want metav1.Object) bool {
	labels, labelsChanged := mergeMap(existing.GetLabels(), want.GetLabels())
	annotations, annotationsChanged := mergeMap(existing.GetAnnotations(), want.GetAnnotations())
	existing.SetLabels(labels)
	existing.SetAnnotations(annotations)
	return labelsChanged || annotationsChanged
}

func mergeMap(existing, want map[string]string) (map[string]string, bool) {
	merged := maps.Clone(want)
	maps.Copy(merged, existing)
	return merged, !maps.Equal(merged, existing)
}
