package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testenv"
)

// TestVariants shows which variants a DaemonSet has, on how many nodes, and in words what is wrong with them.
func TestVariants(t *testing.T) {
	ctx := browser(t)
	env := testenv.Start(t, testenv.SimulatedNodes(6))
	core := kubernetes.NewForConfigOrDie(env.Config)
	own, err := client.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"size":%q}}}`, []string{"l", "l", "l", "m", "m", "s"}[i])
		_, err := core.CoreV1().Nodes().Patch(t.Context(), list.Items[i].Name, "application/merge-patch+json", []byte(patch),
			metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"app": "agent"}
	_, err = core.AppsV1().DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Labels: labels},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "example.com/agent:1"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	vary := func(name, size, formula string) {
		t.Helper()
		_, err := own.DaemonSetVariants("default").Create(t.Context(), &v1alpha1.DaemonSetVariant{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.DaemonSetVariantSpec{
				DaemonSets: &metav1.LabelSelector{MatchLabels: labels}, Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"size": size}},
				Resources: map[string]v1alpha1.VariantResources{
					"agent": {Requests: map[corev1.ResourceName]string{corev1.ResourceCPU: formula}},
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	s := session{t, ctx}
	s.do("open", chromedp.Navigate(open(t, env.DataDir())))
	s.press("#set-list", "agent")
	s.shows("#legend", "Current 6")
	vary("large", "l", "0.5")
	s.shows("#rollout", "large03as it should be(template)3no variant chooses these nodes")
	s.shows("#legend", "Current 6")
	s.shows("#attention", "Nothing needs you")
	s.do("find a node", chromedp.SendKeys("#find", "sim-0001\r"))
	s.shows("#panel-body", "made by variant large (agent requests 500m of cpu)")
	s.close()
	vary("medium", "m", "0.2")
	vary("other", "m", "0.3")
	vary("small", "s", "node.labels['cores'] == '4' ? 0.1 : 0.2")
	s.shows("#rollout", "(conflict)2several of the highest priority choose these nodes")
	s.shows("#rollout", "in conflict: DaemonSet agent on 2 nodes: medium, other have the same priority")
	s.shows("#rollout", "cannot be had: DaemonSet agent on node sim-0006: variant small: resources.agent.requests.cpu: no such key: cores")
	s.shows("#attention .warn", "default/agent has variants in conflict")
	s.shows("#attention .bad", "default/agent has a variant that cannot be had, small")
	s.do("look at all of it", chromedp.EmulateViewport(1280, 1060))
	s.picture("dashboard-variants")
	s.do("look in the dark", emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: "dark"},
	}))
	s.picture("dashboard-variants-dark")

	for _, name := range []string{"large", "medium", "other", "small"} {
		err := own.DaemonSetVariants("default").Delete(t.Context(), name, metav1.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.shows("#attention", "Nothing needs you")
	s.shows("#legend", "Current 6")
	var left string
	s.do("read the rollout", chromedp.Text("#rollout", &left))
	if !strings.Contains(left, "default/agent") || strings.Contains(left, "Variants") {
		t.Errorf("without variants it shows %q", left)
	}
}
