package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/testenv"
)

// slowly has each image that is new take ten seconds, and nodes tell digests.
const slowly = `
faults: [{name: slow, pods: {image: "example.com/agent:2"}, slowPull: {takes: 10s}}]
tags: {move: 1h}
`

// TestStepsThatGrowAndFetch shows the steps of a ramp, who fetches images before its turn, and which digest they have.
func TestStepsThatGrowAndFetch(t *testing.T) {
	ctx := browser(t)
	faults, err := illness.Parse([]byte(slowly))
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.Start(t, testenv.SimulatedNodes(7), func(o *config.Options) { o.Faults = faults })
	core := kubernetes.NewForConfigOrDie(env.Config)
	own, err := client.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = own.RolloutPolicies("default").Create(t.Context(), &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "agents"},
		Spec: v1alpha1.RolloutPolicySpec{Images: v1alpha1.ImagesPinned, Waves: []v1alpha1.Wave{{
			Name: "more", Nodes: &metav1.LabelSelector{}, Ramp: &v1alpha1.Ramp{}, Fetch: true,
			Approval: v1alpha1.ApprovalManual,
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "agent"}
	_, err = core.AppsV1().DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "example.com/agent:1"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := session{t, ctx}
	s.do("open", chromedp.Navigate(open(t, env.DataDir())))
	s.press("#set-list", "agent")
	s.shows("#rollout", "7 of 7 nodes have revision")
	s.shows("#rollout", "image example.com/agent:1 is sha256:")
	setImage(t, core, "example.com/agent:2")
	s.shows("#rollout", "nodesdonefailedunavailablefetchingfetched")
	// The step, and its nodes, done, failed, unavailable, fetching and fetched.
	s.shows("#rollout", "more/1100010more/2200000more/3400000")
	s.shows("#rollout", "WaitingForApproval")
	s.shows("#rollout", "image example.com/agent:2 is sha256:")
	s.shows("#rollout", "more/1110000more/2200002more/3400000")
}
