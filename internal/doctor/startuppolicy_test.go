package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	authorizationv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/beside"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/doctor/diagnosis"
	"github.com/everynode/everynode/internal/testenv"
)

// besideRole is what examples/beside-rbac.yaml allows, without what is about one resource; "" for all of it.
func besideRole(t *testing.T, without string) *authorizationv1.ClusterRole {
	t.Helper()
	raw, err := os.ReadFile("../../examples/beside-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(string(raw), "\n---\n") {
		var role authorizationv1.ClusterRole
		err = yaml.Unmarshal([]byte(text), &role)
		if err == nil && role.Kind == "ClusterRole" {
			role.Rules = slices.DeleteFunc(role.Rules, func(r authorizationv1.PolicyRule) bool {
				return slices.Contains(r.Resources, without)
			})
			return &role
		}
	}
	t.Fatal("there is no role")
	return nil
}

// TestStartupPolicy: what is wrong with a policy by which the API server closes nodes is found, and who leaves takes it
// away, with the rights of the example. With those of a release before nothing changes.
func TestStartupPolicy(t *testing.T) {
	env := testenv.Start(t)
	ctx, api := t.Context(), env.Client.AdmissionregistrationV1()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	finds := func(want string) {
		t.Helper()
		seen, err := Cluster(ctx, env.Config)
		must(nil, err)
		var got []string
		for _, f := range diagnosis.OfCluster(seen) {
			if strings.HasPrefix(f.Subject, "mutatingadmissionpolicy/") {
				got = append(got, f.Message)
			}
		}
		if text := strings.Join(got, "\n"); !strings.Contains(text, want) || (want == "") != (text == "") {
			t.Errorf("found is %q, want %q", text, want)
		}
	}
	finds("")
	policy, binding := registration.StartupPolicy()
	older := policy.DeepCopy()
	older.Spec.MatchConditions = older.Spec.MatchConditions[1:]
	must(api.MutatingAdmissionPolicies().Create(ctx, older, metav1.CreateOptions{}))
	finds("no binding names it")
	renamed := binding.DeepCopy()
	renamed.Name = "of-another-name"
	must(api.MutatingAdmissionPolicyBindings().Create(ctx, renamed, metav1.CreateOptions{}))
	finds("it is not what this version of Everynode prints")
	must(nil, api.MutatingAdmissionPolicyBindings().Delete(ctx, renamed.Name, metav1.DeleteOptions{}))
	must(api.MutatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}))
	finds("it is not what this version of Everynode prints")
	stored, err := api.MutatingAdmissionPolicies().Get(ctx, policy.Name, metav1.GetOptions{})
	must(nil, err)
	stored.Spec = policy.Spec
	must(api.MutatingAdmissionPolicies().Update(ctx, stored, metav1.UpdateOptions{}))
	finds("the NodeStartup that it goes by is gone, and it closes no node")

	hook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: registration.Name}}
	must(api.MutatingWebhookConfigurations().Create(ctx, hook, metav1.CreateOptions{}))
	roles := env.Client.RbacV1().ClusterRoles()
	role, err := roles.Create(ctx, besideRole(t, "mutatingadmissionpolicies"), metav1.CreateOptions{})
	must(nil, err)
	must(env.Client.RbacV1().ClusterRoleBindings().Create(ctx, &authorizationv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "leaver"},
		RoleRef:    authorizationv1.RoleRef{APIGroup: authorizationv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []authorizationv1.Subject{{APIGroup: authorizationv1.GroupName, Kind: "User", Name: "leaver"}},
	}, metav1.CreateOptions{}))
	must(env.Client.RbacV1().RoleBindings("kube-system").Create(ctx, &authorizationv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "leaver"},
		RoleRef:    authorizationv1.RoleRef{APIGroup: authorizationv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []authorizationv1.Subject{{APIGroup: authorizationv1.GroupName, Kind: "User", Name: "leaver"}},
	}, metav1.CreateOptions{}))
	var out bytes.Buffer
	leaver := beside.Leaver{API: rest.CopyConfig(env.Config), Out: &out, Normalize: func(*corev1.PodTemplateSpec) {},
		Options: beside.Options{Namespace: "kube-system", Secret: "everynode-webhook"}}
	leaver.API.Impersonate = rest.ImpersonationConfig{UserName: "leaver", Groups: []string{"system:authenticated"}}
	env.Eventually("who has the rights of before is refused", func(ctx context.Context) error {
		err := leaver.Leave(ctx)
		if err == nil || !strings.Contains(err.Error(), "nothing changed: a policy may close nodes that nobody would open") {
			return fmt.Errorf("it ends with %w", err)
		}
		return nil
	})
	must(api.MutatingAdmissionPolicies().Get(ctx, policy.Name, metav1.GetOptions{}))
	must(api.MutatingAdmissionPolicyBindings().Get(ctx, policy.Name, metav1.GetOptions{}))
	must(api.MutatingWebhookConfigurations().Get(ctx, hook.Name, metav1.GetOptions{}))

	role.Rules = besideRole(t, "").Rules
	must(roles.Update(ctx, role, metav1.UpdateOptions{}))
	named, naming := policy.DeepCopy(), binding.DeepCopy()
	named.Name, naming.Name, naming.Spec.PolicyName = "of-a-team", "of-a-team-too", "of-a-team"
	must(api.MutatingAdmissionPolicies().Create(ctx, named, metav1.CreateOptions{}))
	must(api.MutatingAdmissionPolicyBindings().Create(ctx, naming, metav1.CreateOptions{}))
	finds("it is what Everynode prints, under another name than everynode-startup")
	env.Eventually("who may not delete one under another name is refused", func(ctx context.Context) error {
		err := leaver.Leave(ctx)
		if err == nil || !strings.Contains(err.Error(), "mutatingadmissionpolicybindings of-a-team") {
			return fmt.Errorf("it ends with %w", err)
		}
		return nil
	})
	must(api.MutatingAdmissionPolicies().Get(ctx, policy.Name, metav1.GetOptions{}))
	must(nil, api.MutatingAdmissionPolicies().Delete(ctx, named.Name, metav1.DeleteOptions{}))
	must(nil, api.MutatingAdmissionPolicyBindings().Delete(ctx, naming.Name, metav1.DeleteOptions{}))
	env.Eventually("who has the rights of the example leaves", leaver.Leave)
	if said := out.String(); strings.Count(said, "The policy everynode-startup") != 1 {
		t.Errorf("it says %s", said)
	}
	_, err = api.MutatingAdmissionPolicies().Get(ctx, policy.Name, metav1.GetOptions{})
	_, also := api.MutatingAdmissionPolicyBindings().Get(ctx, policy.Name, metav1.GetOptions{})
	_, asks := api.MutatingWebhookConfigurations().Get(ctx, hook.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(also) || !apierrors.IsNotFound(asks) {
		t.Errorf("what is left: %v", errors.Join(err, also, asks))
	}
	finds("")
}
