package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/testenv"
)

// TestEvictionIsWrittenDown evicts pods of every state; finalizers hold them, so
// that their last status can be read.
func TestEvictionIsWrittenDown(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, testenv.SimulatedNodes(1))
	pods := env.Client.CoreV1().Pods("default")
	for name, edit := range map[string]func(*corev1.Pod){
		"running": func(*corev1.Pod) {},
		"pending": func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"no-such": "node"} },
		"twice":   func(p *corev1.Pod) { p.Labels["twice"] = "yes" },
		"kept":    func(*corev1.Pod) {},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}, Finalizers: []string{"example.com/held"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1"}}}}
		edit(p)
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"running", "twice", "kept"} {
		env.Eventually(name+" is ready", func(ctx context.Context) error {
			p, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err == nil && !pod.IsReady(p) {
				err = fmt.Errorf("its status is %+v", p.Status)
			}
			return err
		})
	}
	for _, b := range []policyv1.PodDisruptionBudget{
		{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"twice": "yes"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "twice"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "keeps"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "kept"}}}},
	} {
		if _, err := env.Client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	evict := func(name string, options *metav1.DeleteOptions) error {
		return pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: options})
	}
	target := func(name string) (*corev1.Pod, *corev1.PodCondition) {
		t.Helper()
		p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p, pod.Condition(p, corev1.DisruptionTarget)
	}

	if err := evict("running", &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	if p, c := target("running"); p.DeletionTimestamp != nil || c != nil {
		t.Errorf("a dry run left %v and %+v", p.DeletionTimestamp, c)
	}
	if err := evict("running", &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}); !apierrors.IsConflict(err) {
		t.Errorf("eviction of another pod of the name: %v, want a conflict", err)
	}
	for _, name := range []string{"running", "pending"} {
		if err := evict(name, nil); err != nil {
			t.Errorf("evict %s: %v", name, err)
		}
		p, c := target(name)
		if p.DeletionTimestamp == nil || c == nil || c.Status != corev1.ConditionTrue || c.Reason != "EvictionByEvictionAPI" || c.Message != "Eviction API: evicting" || c.LastTransitionTime.IsZero() {
			t.Errorf("%s is evicted: deleted %v, with the condition %+v", name, p.DeletionTimestamp, c)
		}
	}
	if err := evict("twice", nil); err == nil || err.Error() != "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support." {
		t.Errorf("two budgets cover the pod: %v", err)
	}
	if err := evict("kept", nil); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "Cannot evict pod as it would violate the pod's disruption budget.") {
		t.Errorf("the budget allows none: %v", err)
	}
	for _, name := range []string{"twice", "kept"} {
		if p, c := target(name); p.DeletionTimestamp != nil || c != nil {
			t.Errorf("%s stays: deleted %v, with the condition %+v", name, p.DeletionTimestamp, c)
		}
	}
}
