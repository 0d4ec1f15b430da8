package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	nodefacts "github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/testenv"
)

// TestNodeShutsDownInOrder ends a whole agent, with a container that would run on, and looks what the API knows
// afterwards.
func TestNodeShutsDownInOrder(t *testing.T) {
	m := newMachine(t)
	env := testenv.Start(t)
	stop := startAgent(t, m, env, joinToken(t, env), func(c *config.Config) { c.ShutdownGrace = time.Minute })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{
		NodeName: "n1", HostNetwork: true, TerminationGracePeriodSeconds: new(int64(1)),
		AutomountServiceAccountToken: new(false),
		Containers:                   []corev1.Container{{Name: "main", Image: podstest.BoxImage, Args: []string{"sleep"}}},
	}}
	pod, err := env.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	podstest.Must(t, err)
	env.Eventually("the pod runs", func(ctx context.Context) error {
		got, err := env.Client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		if err == nil && !podstest.IsReady(got) {
			err = fmt.Errorf("status %+v", got.Status)
		}
		return err
	})
	stop()
	got, err := env.Client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	podstest.Must(t, err)
	if got.Status.Phase != corev1.PodFailed || got.Status.Reason != "Terminated" {
		t.Errorf("the pod is %s, %q, want that it was ended by the shutdown", got.Status.Phase, got.Status.Reason)
	}
	node, err := env.Client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	podstest.Must(t, err)
	goesDown := nodefacts.Condition(node, corev1.NodeGracefulNodeShutdownInProgress)
	if goesDown == nil || goesDown.Status != corev1.ConditionTrue {
		t.Errorf("of a shutdown in progress the node says %+v", goesDown)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionFalse ||
			!strings.Contains(c.Message, "node is shutting down")) {
			t.Errorf("the node's condition is %+v, want that it shuts down", c)
		}
	}
	containers, err := m.services.Runtime.ListContainers(t.Context(), nil)
	podstest.Must(t, err)
	for _, c := range containers {
		if c.Labels["io.kubernetes.pod.uid"] == string(pod.UID) && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container %s runs on", c.Metadata.Name)
		}
	}
}
