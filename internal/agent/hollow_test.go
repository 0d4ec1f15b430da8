package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/hollow/hollowagent"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/testenv"
)

// TestHollow runs a hollow agent against a whole control plane: its node becomes ready, has a lease, and a pod of a
// DaemonSet is reported running there, with its events, and gone when the DaemonSet is.
func TestHollow(t *testing.T) {
	e := testenv.Start(t)
	joined := make(chan struct{})
	h := hollowagent.Agent{Joined: func() { close(joined) }, Config: config.Config{
		Node: config.Node{Server: e.Config.Host, Token: joinToken(t, e), NodeName: "h1",
			NodeIPs: []net.IP{net.IPv4(100, 64, 0, 1)}, Version: "v0.0.0"},
		Folders: config.Folders{DataDir: t.TempDir()},
	}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with: %v", err)
		}
	})
	e.Eventually("the node is ready", func(ctx context.Context) error {
		node, err := e.Client.CoreV1().Nodes().Get(ctx, "h1", metav1.GetOptions{})
		if err == nil && len(node.Spec.Taints) > 0 {
			err = fmt.Errorf("taints %v", node.Spec.Taints)
		}
		if err == nil {
			_, err = e.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "h1", metav1.GetOptions{})
		}
		return err
	})
	<-joined
	labels := map[string]string{"app": "d"}
	_, err := e.Client.AppsV1().DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "first", Image: "i"}},
				Containers:     []corev1.Container{{Name: "main", Image: "i"}},
			},
		}},
	}, metav1.CreateOptions{})
	podstest.Must(t, err)
	pod := readyDaemon(e)
	e.Eventually("events tell of it", func(ctx context.Context) error {
		list, err := e.Client.CoreV1().Events("default").List(ctx,
			metav1.ListOptions{FieldSelector: "reason=Started,involvedObject.name=" + pod.Name})
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("%d containers were started, want 2", len(list.Items))
		}
		return err
	})
	podstest.Must(t, e.Client.AppsV1().DaemonSets("default").Delete(t.Context(), "d", metav1.DeleteOptions{}))
	e.Eventually("the pod is gone", func(ctx context.Context) error {
		_, err := e.Client.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %w", cmp.Or(err, errors.New("no error")))
	})
}
