package rolloutapproval

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

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
	owned, held := policy(v1alpha1.ApprovalManual), policy(v1alpha1.ApprovalManual)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
	held.Finalizers = []string{"example.com/held"}
	labelled := policy(v1alpha1.ApprovalManual)
	labelled.Labels = map[string]string{"a": "b"}
	const refusal = "you need the right to"
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
		{"an editor has the garbage collector delete it", "editor", policy(v1alpha1.ApprovalManual), owned, "", refusal},
		{"an editor lets it go", "editor", held, policy(v1alpha1.ApprovalManual), "", refusal},
		{"who may approve gives it an owner", "admin", policy(v1alpha1.ApprovalManual), owned, "", ""},
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
			err := New(approvers{}, &Stored{fixed{&v1alpha1.RolloutPolicyList{}}, fixed{&appsv1.DaemonSetList{}}}).Validate(t.Context(), a, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the answer is %v, want %q", err, c.want)
			}
		})
	}
}

// fixed is a storage with these objects.
type fixed struct{ list runtime.Object }

func (f fixed) NewList() runtime.Object { return f.list.DeepCopyObject() }

func (f fixed) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	if f.list == nil {
		return nil, errors.New("the database does not answer")
	}
	return f.list.DeepCopyObject(), nil
}

func (fixed) ConvertToTable(context.Context, runtime.Object, runtime.Object) (*metav1.Table, error) {
	return nil, nil
}

var _ rest.Lister = fixed{}

// aged is a policy for a tier that was made so many hours after the first.
func aged(name, tier string, hours int, approval v1alpha1.Approval) *v1alpha1.RolloutPolicy {
	p := policy(approval)
	p.Name = name
	p.CreationTimestamp = metav1.NewTime(time.Date(2026, 3, 1, hours, 0, 0, 0, time.UTC))
	if tier != "" {
		p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}
	}
	return p
}

func daemonSet(tier string, strategy appsv1.DaemonSetUpdateStrategyType, image string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "logs"}}
	if tier != "" {
		ds.Labels = map[string]string{"tier": tier}
	}
	ds.Spec.UpdateStrategy.Type = strategy
	ds.Annotations = map[string]string{"image": image}
	return ds
}

// TestWhoMayTakeADaemonSetOutOfItsPolicy has policy "careful" ask for approval of DaemonSet "logs" of tier logs, beside
// the older policy "lax" of tier free.
func TestWhoMayTakeADaemonSetOutOfItsPolicy(t *testing.T) {
	const (
		refusal         = "DaemonSet logs follows policy careful, of which a wave waits for approval, so you need the right to"
		rolling, manual = appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType
	)
	lax := aged("lax", "free", 1, v1alpha1.ApprovalAutomatic)
	have := daemonSet("logs", rolling, "1")
	stored := &Stored{
		fixed{&v1alpha1.RolloutPolicyList{Items: []v1alpha1.RolloutPolicy{*lax, *aged("careful", "logs", 2, v1alpha1.ApprovalManual)}}},
		fixed{&appsv1.DaemonSetList{Items: []appsv1.DaemonSet{*have}}},
	}
	silent := &Stored{fixed{}, fixed{}}
	for _, c := range []struct {
		name, user string
		stored     *Stored
		old, now   runtime.Object
		want       string
	}{
		{"the label goes", "editor", stored, have, daemonSet("", rolling, "1"), refusal},
		{"the label becomes that of a lax policy, with another template", "editor", stored, have, daemonSet("free", rolling, "2"), refusal},
		{"pods are left to whoever deletes them", "editor", stored, have, daemonSet("logs", manual, "2"), refusal},
		{"another template", "editor", stored, have, daemonSet("logs", rolling, "2"), ""},
		{"it comes under the policy", "editor", stored, daemonSet("free", rolling, "1"), have, ""},
		{"who may approve takes it out", "admin", stored, have, daemonSet("", rolling, "1"), ""},
		{"nobody knows the policies", "editor", silent, have, daemonSet("", rolling, "1"), "the database does not answer"},
		{"nobody needs to know the policies", "editor", silent, have, daemonSet("logs", rolling, "2"), ""},
		{"an older policy takes it over", "editor", stored, lax, aged("lax", "logs", 1, v1alpha1.ApprovalAutomatic), refusal},
		{"an older policy takes all over", "editor", stored, lax, aged("lax", "", 1, v1alpha1.ApprovalAutomatic), refusal},
		{"an older policy takes others", "editor", stored, lax, aged("lax", "others", 1, v1alpha1.ApprovalAutomatic), ""},
		{"an older policy asks for less", "editor", stored, lax, aged("lax", "free", 1, ""), ""},
		{"who may approve has it taken over", "admin", stored, lax, aged("lax", "logs", 1, ""), ""},
		{"a younger policy selects it", "editor", stored, nil, aged("new", "logs", 3, v1alpha1.ApprovalAutomatic), ""},
		{"a policy of the same second and an earlier name", "editor", stored, nil, aged("a", "logs", 2, v1alpha1.ApprovalAutomatic), refusal},
		{"nobody knows what it would take over", "editor", silent, lax, aged("lax", "logs", 1, ""), "the database does not answer"},
		{"a lax policy goes", "editor", stored, lax, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			operation := admission.Update
			switch {
			case c.old == nil:
				operation = admission.Create
			case c.now == nil:
				operation = admission.Delete
			}
			kind, of := v1alpha1.GroupVersion.WithKind("RolloutPolicy"), v1alpha1.GroupVersion.WithResource("rolloutpolicies")
			if _, is := c.now.(*appsv1.DaemonSet); is {
				kind, of = appsv1.SchemeGroupVersion.WithKind("DaemonSet"), appsv1.SchemeGroupVersion.WithResource("daemonsets")
			}
			a := admission.NewAttributesRecord(c.now, c.old, kind, "agents", "x", of, "", operation, nil, false, &user.DefaultInfo{Name: c.user})
			err := New(approvers{}, c.stored).Validate(t.Context(), a, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the answer is %v, want %q", err, c.want)
			}
		})
	}
}
