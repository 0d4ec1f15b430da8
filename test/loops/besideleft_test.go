package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/testenv"
)

// leavingAPolicyTakesTheRightToApprove: where Everynode runs beside another controller, who may only write DaemonSets
// does not take one out of a policy in which a wave waits for approval, also while nobody answers as the webhook.
func leavingAPolicyTakesTheRightToApprove(t *testing.T, env *testenv.Env) {
	const namespace = "beside-left"
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(env.Client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}))
	own, err := client.NewForConfig(env.Config)
	must(nil, err)
	policies := own.RolloutPolicies(namespace)
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}, Spec: v1alpha1.RolloutPolicySpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"policy": "careful"}},
		Waves:    []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{}, Approval: v1alpha1.ApprovalManual}},
	}}
	must(policies.Create(ctx, policy, metav1.CreateOptions{}))
	register(t, env, "-left")

	labels := map[string]string{"app": "agent"}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: namespace, Labels: map[string]string{"policy": "careful"},
			Annotations: map[string]string{admit.UpdateStrategy: "{}"}},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{NodeSelector: map[string]string{"no": "node"},
					Containers: []corev1.Container{{Name: "c", Image: "agent:1"}}}}},
	}
	must(env.Client.AppsV1().DaemonSets(namespace).Create(ctx, ds, metav1.CreateOptions{}))
	sets := developer(t, env, namespace).AppsV1().DaemonSets(namespace)
	write := func(ctx context.Context, change func(*appsv1.DaemonSet)) error {
		is, err := sets.Get(ctx, ds.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(is)
		_, err = sets.Update(ctx, is, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	leave := func(is *appsv1.DaemonSet) { delete(is.Labels, "policy") }
	refused := func(err error) error {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "need the right to write daemonsetrollouts") {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	}
	env.Eventually("who may not approve is refused", func(ctx context.Context) error { return refused(write(ctx, leave)) })
	if err := write(ctx, func(is *appsv1.DaemonSet) { delete(is.Annotations, admit.UpdateStrategy) }); refused(err) != nil {
		t.Errorf("to take the annotation off: %v", err)
	}
	another := func(is *appsv1.DaemonSet) { is.Spec.Template.Spec.Containers[0].Image = "agent:2" }
	if err := write(ctx, another); err != nil {
		t.Errorf("to stay with another image: %v", err)
	}

	grant(t, env, namespace, "approves", rbacv1.PolicyRule{
		APIGroups: []string{"everynode.io"}, Resources: []string{"daemonsetrollouts"}, Verbs: []string{"update"}})
	env.Eventually("who may approve is not", func(ctx context.Context) error { return write(ctx, leave) })
}

// register puts one policy of the net into force.
func register(t *testing.T, env *testenv.Env, which string) {
	t.Helper()
	o := registration.Options{Account: "system:serviceaccount:everynode:everynode"}
	kinds := env.Client.AdmissionregistrationV1()
	for _, p := range registration.Net(o) {
		if p.Name != registration.Name+which {
			continue
		}
		if _, err := kinds.ValidatingAdmissionPolicies().Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range registration.Bindings(o) {
		if b.Name != registration.Name+which {
			continue
		}
		if _, err := kinds.ValidatingAdmissionPolicyBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// developer is a client of somebody who may write the DaemonSets of a namespace, and nothing else.
func developer(t *testing.T, env *testenv.Env, namespace string) kubernetes.Interface {
	t.Helper()
	grant(t, env, namespace, "develops", rbacv1.PolicyRule{
		APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get", "update"}})
	config := restclient.CopyConfig(env.Config)
	config.Impersonate = restclient.ImpersonationConfig{UserName: "developer"}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// grant gives the developer a right.
func grant(t *testing.T, env *testenv.Env, namespace, name string, rule rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
	if _, err := env.Client.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "developer"}}}
	if _, err := env.Client.RbacV1().RoleBindings(namespace).Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
