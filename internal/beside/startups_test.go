package beside

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/registration"
	startup "github.com/everynode/everynode/internal/objects/nodestartup"
)

// closedNode is closed, and marked.
func closedNode(name string) *corev1.Node {
	gate := startup.Gate(startup.Place{Startup: "s", Group: 1}, v1alpha1.GateJoin, time.Unix(0, 0))
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Annotations: map[string]string{
			"mine": "stays", startup.MarkAnnotation: "s/b", startup.NotClosedAnnotation: "why",
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}, *gate}},
	}
}

// TestLeavingOpensNodes: nothing of NodeStartups stays on any node, also on one that is closed meanwhile.
func TestLeavingOpensNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(closedNode("a"), closedNode("b"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
		began, first := time.Now(), true
		client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !first {
				return false, nil, nil
			}
			first = false
			if time.Since(began) < leavingFor {
				t.Error("nodes are opened before a controller that runs knows of it")
			}
			return false, nil, client.Tracker().Add(closedNode("d")) // it joined just then
		})
		var out bytes.Buffer
		l := &Leaver{client: client, Out: &out}
		err := l.openNodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			n := &list.Items[i]
			if startup.TaintOf(n.Spec.Taints) != nil || len(n.Annotations) > 1 || n.Name != "c" && len(n.Spec.Taints) != 1 {
				t.Errorf("node %s has %v and %v", n.Name, n.Spec.Taints, n.Annotations)
			}
		}
		if !strings.Contains(out.String(), "2 nodes that") || !strings.Contains(out.String(), "1 nodes that") {
			t.Errorf("it says %s", &out)
		}
		client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("no")
		})
		if err := client.Tracker().Add(closedNode("e")); err != nil {
			t.Fatal(err)
		}
		if err := l.openNodes(t.Context()); err == nil || !strings.Contains(err.Error(), "open node e: no") {
			t.Errorf("a node that cannot be opened is told of as %v", err)
		}
	})
}

// TestLeavingOpensWhatIsClosedLate: an API server may go by a policy for a moment that is not there any more.
func TestLeavingOpensWhatIsClosedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, first := fake.NewClientset(), true
		client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !first {
				return false, nil, nil
			}
			first = false
			return true, &corev1.NodeList{}, client.Tracker().Add(closedNode("late"))
		})
		err := (&Leaver{client: client, Out: &bytes.Buffer{}}).openNodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n, err := client.CoreV1().Nodes().Get(t.Context(), "late", metav1.GetOptions{})
		if err != nil || startup.TaintOf(n.Spec.Taints) != nil {
			t.Errorf("the node is %+v (%v)", n, err)
		}
	})
}

// TestLeavingDeletesThePolicyOfAnOlderKubernetes, which has it in another version, and says so once.
func TestLeavingDeletesThePolicyOfAnOlderKubernetes(t *testing.T) {
	meta := metav1.ObjectMeta{Name: registration.StartupPolicyName}
	client := fake.NewClientset(&admissionv1beta1.MutatingAdmissionPolicy{ObjectMeta: meta},
		&admissionv1beta1.MutatingAdmissionPolicyBinding{ObjectMeta: meta,
			Spec: admissionv1beta1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name}})
	for _, want := range []int{1, 0} {
		said, err := leaves(t, client)
		if err != nil || strings.Count(said, meta.Name) != want {
			t.Errorf("it says %q (%v), want %d of it", said, err, want)
		}
	}
	api := client.AdmissionregistrationV1beta1()
	_, err := api.MutatingAdmissionPolicies().Get(t.Context(), meta.Name, metav1.GetOptions{})
	_, also := api.MutatingAdmissionPolicyBindings().Get(t.Context(), meta.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(also) {
		t.Errorf("they are left: %v, %v", err, also)
	}
}

// TestLeavingFindsAPolicyByWhatItDoes: the printed one goes under any name. One that only resembles it is somebody's
// own, and as long as it closes nodes nothing changes.
func TestLeavingFindsAPolicyByWhatItDoes(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(*admissionv1.MutatingAdmissionPolicy)
		bound         bool
		refused, goes bool
	}{
		"the printed one": {func(*admissionv1.MutatingAdmissionPolicy) {}, true, false, true},
		"one of it": {func(p *admissionv1.MutatingAdmissionPolicy) { p.Spec.MatchConditions = nil }, true, true,
			false},
		"one of it that nothing binds": {func(p *admissionv1.MutatingAdmissionPolicy) { p.Spec.MatchConditions = nil }, false,
			false, true},
		"one with another taint": {func(p *admissionv1.MutatingAdmissionPolicy) {
			p.Spec.Mutations[0].JSONPatch.Expression = "[]"
		}, true, false, false},
	} {
		policy, binding := registration.StartupPolicy()
		policy.Name, binding.Name, binding.Spec.PolicyName = "of-a-team", "of-a-team-too", "of-a-team"
		c.change(policy)
		own, ofOwn := registration.StartupPolicy()
		objects := []runtime.Object{policy, own, ofOwn}
		if c.bound {
			objects = append(objects, binding)
		}
		client := fake.NewClientset(objects...)
		said, err := leaves(t, client)
		if (err != nil) != c.refused || errors.Is(err, errRefused) != c.refused {
			t.Errorf("%s: it ends with %v", name, err)
		}
		api := client.AdmissionregistrationV1()
		_, err = api.MutatingAdmissionPolicies().Get(t.Context(), policy.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) != c.goes || strings.Contains(said, "The policy of-a-team,") != c.goes {
			t.Errorf("%s: reading it ends with %v, and it says %s", name, err, said)
		}
		_, err = api.MutatingAdmissionPolicyBindings().Get(t.Context(), binding.Name, metav1.GetOptions{})
		if c.bound && apierrors.IsNotFound(err) != c.goes {
			t.Errorf("%s: reading its binding ends with %v", name, err)
		}
		_, err = api.MutatingAdmissionPolicies().Get(t.Context(), own.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) == c.refused {
			t.Errorf("%s: reading ours ends with %v", name, err)
		}
	}
}

// listing is a cache of that many NodeStartups.
type listing struct {
	client.Reader
	many int
}

func (l listing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.NodeStartupList).Items = make([]v1alpha1.NodeStartup, l.many)
	return nil
}

// TestNodesAreAskedAboutWhileThereAreNodeStartups: one that begins to lead does not stop it before it knows.
func TestNodesAreAskedAboutWhileThereAreNodeStartups(t *testing.T) {
	api := fake.NewClientset()
	g := newGuest(t, api)
	held, err := g.certificate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		known, many, want int
	}{{0, 0, 4}, {1, 1, 5}, {0, 0, 5}, {1, 2, 5}, {1, 0, 4}, {0, 0, 4}} {
		g.startups.objects.Store(nil)
		if c.known > 0 {
			reader := client.Reader(listing{many: c.many})
			g.startups.objects.Store(&reader)
		}
		if err := g.register(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		have, err := api.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), registration.Name,
			metav1.GetOptions{})
		if err != nil || len(have.Webhooks) != c.want {
			t.Errorf("known %d, %d NodeStartups: %d webhooks, %v; want %d", c.known, c.many, len(have.Webhooks), err, c.want)
		}
	}
}
