package nodestartup

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

const controller = "system:serviceaccount:kube-system:node-startup-controller"

var now = time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)

// lister is a storage in memory, or one that cannot be read.
type lister struct {
	rest.Lister
	all []v1alpha1.NodeStartup
	err error
}

func (l lister) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return &v1alpha1.NodeStartupList{Items: l.all}, l.err
}

func startup(name string, selects map[string]string) v1alpha1.NodeStartup {
	s := v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Gate = v1alpha1.GateJoin
	if selects != nil {
		s.Spec.Nodes = &metav1.LabelSelector{MatchLabels: selects}
	}
	return s
}

func gate(value string) *corev1.Taint {
	at := metav1.NewTime(now.Truncate(time.Second).Add(time.Second))
	return &corev1.Taint{Key: nodestartup.TaintKey, Value: value, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &at}
}

var mine = corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoExecute}

// nodeWith is a node of a pool with a taint of its own and these.
func nodeWith(pool string, gates ...*corev1.Taint) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"pool": pool}}}
	n.Spec.Taints = []corev1.Taint{mine}
	for _, g := range gates {
		n.Spec.Taints = append(n.Spec.Taints, *g)
	}
	return n
}

func request(who string, op admission.Operation, n, old *corev1.Node, subresource string) admission.Attributes {
	var before runtime.Object
	if old != nil {
		before = old
	}
	return admission.NewAttributesRecord(n, before, corev1.SchemeGroupVersion.WithKind("Node"), "", "n",
		corev1.SchemeGroupVersion.WithResource("nodes"), subresource, op, nil, false, &user.DefaultInfo{Name: who})
}

// write is what becomes of a write; between is what webhooks do after our own admission.
func write(t *testing.T, from lister, a admission.Attributes, between func(*corev1.Node)) error {
	t.Helper()
	p := New(controller, &Stored{Startups: from}, authorizer.AuthorizerFunc(mayOpen), clocktesting.NewFakePassiveClock(now))
	err := p.(admission.MutationInterface).Admit(t.Context(), a, nil)
	if err != nil {
		return err
	}
	if between != nil {
		between(a.GetObject().(*corev1.Node))
	}
	return p.(admission.ValidationInterface).Validate(t.Context(), a, nil)
}

// mayOpen lets the operator open nodes of NodeStartup a.
func mayOpen(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	open := a.GetVerb() == "open" && a.GetResource() == "nodestartups" && a.GetAPIGroup() == "everynode.io" &&
		a.IsResourceRequest() && a.GetName() == "a"
	if open && a.GetUser().GetName() == "operator" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// A node is closed in the write that creates it, whoever writes, by the first NodeStartup that chooses it.
func TestNodeIsClosedWhenItIsCreated(t *testing.T) {
	deleted := startup("a-deleted", nil)
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	soft := startup("soft", map[string]string{"pool": "soft"})
	soft.Spec.Gate = v1alpha1.GateNone
	have := lister{all: []v1alpha1.NodeStartup{startup("b", map[string]string{"pool": "x"}),
		startup("a", map[string]string{"pool": "x"}), startup("c", map[string]string{"pool": "y"}), deleted, soft}}
	for _, c := range []struct {
		pool, value string
		effect      corev1.TaintEffect
	}{
		{"x", "a_1", corev1.TaintEffectNoSchedule}, {"y", "c_1", corev1.TaintEffectNoSchedule},
		{"soft", "soft_1", corev1.TaintEffectPreferNoSchedule}, {"z", "", ""},
	} {
		for _, who := range []string{"system:node:n", "admin", controller} {
			n := nodeWith(c.pool)
			if err := write(t, have, request(who, admission.Create, n, nil, ""), nil); err != nil {
				t.Errorf("%s creates a node of pool %s: %v", who, c.pool, err)
			}
			got := nodestartup.TaintOf(n.Spec.Taints)
			switch {
			case n.Spec.Taints[0] != mine:
				t.Errorf("the node's own taint became %v", n.Spec.Taints)
			case c.value == "" && got != nil:
				t.Errorf("a node that nobody chooses has %v", got)
			case c.value != "" && (got == nil || got.Value != c.value || got.Effect != c.effect ||
				got.TimeAdded == nil || got.TimeAdded.Time.Before(now)):
				t.Errorf("a node of pool %s has %v", c.pool, got)
			}
		}
	}
}

// While nobody knows what a node is to start, it cannot join: it would be open.
func TestNodeDoesNotJoinWhileStartupsAreUnknown(t *testing.T) {
	err := write(t, lister{err: errors.New("no majority")}, request("system:node:n", admission.Create, nodeWith("x"), nil, ""), nil)
	if !apierrors.IsInternalError(err) {
		t.Errorf("it gets %v", err)
	}
}

// No gate but the right one comes with a node, whatever it or a webhook writes, also where it deletes its Node and
// creates it again.
func TestGatesThatComeWithANode(t *testing.T) {
	have := lister{all: []v1alpha1.NodeStartup{startup("a", map[string]string{"pool": "x"})}}
	second := gate("a_2")
	second.Effect = corev1.TaintEffectNoExecute
	for name, c := range map[string]struct {
		pool    string
		gates   []*corev1.Taint
		between func(*corev1.Node)
		allowed bool
	}{
		"the right one":           {"x", []*corev1.Taint{gate("a_1")}, nil, true},
		"one that is further":     {"x", []*corev1.Taint{gate("a_2")}, nil, false},
		"one where there is none": {"y", []*corev1.Taint{gate("a_1")}, nil, false},
		"a webhook takes it away": {"x", nil, func(n *corev1.Node) { n.Spec.Taints = nil }, false},
		"a webhook adds one":      {"x", nil, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, *second) }, false},
		"a webhook's labels":      {"y", nil, func(n *corev1.Node) { n.Labels["pool"] = "x" }, false},
	} {
		err := write(t, have, request("system:node:n", admission.Create, nodeWith(c.pool, c.gates...), nil, ""), c.between)
		if c.allowed != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nobody but the controller changes a gate or takes it away; what else they write of the Node goes on.
func TestWhoChangesAGate(t *testing.T) {
	later := gate("a_1")
	later.TimeAdded = &metav1.Time{Time: now.Add(time.Hour)}
	second := gate("a_1")
	second.Effect = corev1.TaintEffectNoExecute
	relabelled := nodeWith("y", gate("a_1"))
	for name, c := range map[string]struct {
		old, n  *corev1.Node
		changes bool
	}{
		"taken away":     {nodeWith("x", gate("a_1")), nodeWith("x"), true},
		"of another":     {nodeWith("x", gate("b_1")), nodeWith("x"), true},
		"of nobody":      {nodeWith("x", gate("nonsense")), nodeWith("x"), true},
		"further":        {nodeWith("x", gate("a_1")), nodeWith("x", gate("a_2")), true},
		"another time":   {nodeWith("x", gate("a_1")), nodeWith("x", later), true},
		"a second one":   {nodeWith("x", gate("a_1")), nodeWith("x", gate("a_1"), second), true},
		"put on later":   {nodeWith("x"), nodeWith("x", gate("a_1")), true},
		"as it was":      {nodeWith("x", gate("a_1")), relabelled, false},
		"without a gate": {nodeWith("x"), nodeWith("y"), false},
	} {
		for _, who := range []string{"system:node:n", "admin", "system:serviceaccount:kube-system:node-controller",
			"operator", controller} {
			err := write(t, lister{}, request(who, admission.Update, c.n, c.old, ""), nil)
			opens := who == "operator" && name == "taken away"
			if want := !c.changes || who == controller || opens; want != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s, by %s: %v", name, who, err)
			}
		}
		// What is written of the status leaves the taints as they are.
		if err := write(t, lister{}, request("system:node:n", admission.Update, c.n, c.old, "status"), nil); err != nil {
			t.Errorf("%s in a report: %v", name, err)
		}
	}
}
