package rolloutapproval

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/everynode/everynode/api/v1alpha1"
)

// approvers lets the user admin do everything with rollouts of one namespace, and
// the user sweeper delete them.
type approvers struct{}

func (approvers) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	name := a.GetUser().GetName()
	if a.GetAPIGroup() == "everynode.io" && a.GetResource() == "daemonsetrollouts" && a.GetNamespace() == "agents" &&
		(name == "admin" || name == "sweeper" && a.GetVerb() == "delete") {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func policy(approvals ...v1alpha1.Approval) *v1alpha1.RolloutPolicy {
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "p"}}
	for _, a := range approvals {
		p.Spec.Waves = append(p.Spec.Waves, v1alpha1.Wave{Name: "w", Approval: a})
	}
	return p
}

func TestWhoMayTakeAnApprovalAway(t *testing.T) {
	labelled := policy(v1alpha1.ApprovalManual)
	labelled.Labels = map[string]string{"a": "b"}
	const refusal = "it takes the right to"
	for _, c := range []struct {
		name, user  string
		old, now    *v1alpha1.RolloutPolicy
		subresource string
		want        string
	}{
		{"an editor takes it away", "editor", policy(v1alpha1.ApprovalManual), policy(v1alpha1.ApprovalAutomatic), "", refusal},
		{"an editor takes the wave away", "editor", policy("", v1alpha1.ApprovalManual), policy(""), "", refusal},
		{"an editor adds a wave", "editor", policy(v1alpha1.ApprovalManual), policy("", v1alpha1.ApprovalManual), "", refusal},
		{"an editor deletes it", "editor", policy(v1alpha1.ApprovalManual), nil, "", refusal},
		{"an editor labels it", "editor", policy(v1alpha1.ApprovalManual), labelled, "", ""},
		{"an editor changes one without", "editor", policy(""), policy("", ""), "", ""},
		{"an editor adds an approval", "editor", policy(""), policy(v1alpha1.ApprovalManual), "", ""},
		{"an editor deletes one without", "editor", policy(""), nil, "", ""},
		{"who may approve takes it away", "admin", policy(v1alpha1.ApprovalManual), policy(""), "", ""},
		{"who may approve deletes it", "admin", policy(v1alpha1.ApprovalManual), nil, "", ""},
		{"who empties namespaces", "sweeper", policy(v1alpha1.ApprovalManual), nil, "", ""},
		{"who empties namespaces changes nothing", "sweeper", policy(v1alpha1.ApprovalManual), policy(""), "", refusal},
		{"the controller's status", "editor", policy(v1alpha1.ApprovalManual), policy(""), "status", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var object, options runtime.Object = nil, &metav1.UpdateOptions{}
			operation := admission.Delete
			if c.now != nil {
				object, operation = c.now, admission.Update
			}
			a := admission.NewAttributesRecord(object, c.old, v1alpha1.GroupVersion.WithKind("RolloutPolicy"), "agents", "p",
				v1alpha1.GroupVersion.WithResource("rolloutpolicies"), c.subresource, operation, options, false, &user.DefaultInfo{Name: c.user})
			err := New(approvers{}).Validate(t.Context(), a, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the answer is %v, want %q", err, c.want)
			}
		})
	}
}
