package loops

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/testenv"
)

// TestNoExecute taints the node of three pods: one does not tolerate it, one does for a
// moment, one for an hour. Taking the taint away saves the last.
func TestNoExecute(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t, testenv.SimulatedNodes(1))
	nodes, err := e.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node := nodes.Items[0].Name
	pods := e.Client.CoreV1().Pods("default")
	for name, seconds := range map[string]*int64{"none": nil, "moment": new(int64(1)), "hour": new(int64(3600))} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1"}}},
		}
		if seconds != nil {
			pod.Spec.Tolerations = []corev1.Toleration{{Key: "broken", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds}}
		}
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	taint := []byte(`{"spec":{"taints":[{"key":"broken","effect":"NoExecute"}]}}`)
	if _, err := e.Client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, taint, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"none", "moment"} {
		e.Eventually("pod "+name+" is evicted", func(ctx context.Context) error {
			_, err := pods.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("still there: %w", err)
		})
		expectEvent(t, e, name, "Marking for deletion Pod default/"+name)
	}
	if _, err := e.Client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expectEvent(t, e, "hour", "Cancelling deletion of Pod default/hour")
	if pod, err := pods.Get(t.Context(), "hour", metav1.GetOptions{}); err != nil || pod.DeletionTimestamp != nil {
		t.Errorf("the pod that tolerated the taint for an hour: %v, %v", pod, err)
	}
}

func expectEvent(t *testing.T, e *testenv.Env, pod, message string) {
	t.Helper()
	e.Eventually("pod "+pod+" has an event", func(ctx context.Context) error {
		events, err := e.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == "TaintManagerEviction" && event.Message == message {
				return nil
			}
		}
		return fmt.Errorf("none of %d says %q", len(events.Items), message)
	})
}
