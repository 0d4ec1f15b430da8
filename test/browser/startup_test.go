package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/internal/testenv"
)

// TestNodesThatStart shows nodes that a NodeStartup has closed, what they wait for, and which pods may not start yet.
func TestNodesThatStart(t *testing.T) {
	ctx := browser(t)
	env := testenv.Start(t, testenv.SimulatedNodes(2))
	core := kubernetes.NewForConfigOrDie(env.Config)
	own, err := client.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	s := session{t, ctx}
	s.do("open", chromedp.Navigate(open(t, env.DataDir())))
	s.shows("#legend", "Ready 2")
	_, err = own.NodeStartups().Create(t.Context(), &v1alpha1.NodeStartup{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec: v1alpha1.NodeStartupSpec{Groups: []v1alpha1.StartupGroup{
			{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "kube-system", Name: "cni"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = core.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready := fmt.Appendf(nil, `{"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": %[1]q,
		"lastTransitionTime": %[1]q}]}}`, time.Now().UTC().Format(time.RFC3339))
	_, err = core.CoreV1().Nodes().Patch(t.Context(), "late", types.StrategicMergePatchType, ready, metav1.PatchOptions{},
		"status")
	if err != nil {
		t.Fatal(err)
	}
	s.shows("#legend", "Starting 1")
	s.shows("#attention .bad", "1 node stays closed")
	s.shows("#attention .bad", "it waits for kube-system/cni, which does not exist")

	held, err := core.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "held"},
		Spec: corev1.PodSpec{NodeName: "late", Containers: []corev1.Container{{Name: "main",
			Image: "example.com/main:1"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(nodestartup.HeldFor).UTC().Format("15:04:05 UTC")
	held.Status.Conditions = append(held.Status.Conditions, corev1.PodCondition{Type: nodestartup.WaitsCondition,
		Status: corev1.ConditionTrue, Message: "group 1 lacks kube-system/cni-x; until " + until + " at most"})
	_, err = core.CoreV1().Pods("default").UpdateStatus(t.Context(), held, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.do("find the node", chromedp.SendKeys("#find", "late\r"))
	s.shows("#panel-title", "late")
	s.shows("#panel-body", "Starts group 1 of 1 of NodeStartup all; it waits for kube-system/cni")
	s.shows("#panel-body", fmt.Sprintf("May not start yet: default/held. group 1 lacks kube-system/cni-x; until %s", until))
	s.close()

	// The node opens as its NodeStartup goes.
	err = own.NodeStartups().Delete(t.Context(), "all", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.shows("#attention", "Nothing needs you")
}
