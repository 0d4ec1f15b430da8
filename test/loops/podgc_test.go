package loops

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/everynode/everynode/internal/testenv"
)

// TestDeletedNodeTakesItsPods deletes a node whose agent cannot end its pods any more.
func TestDeletedNodeTakesItsPods(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	for _, name := range []string{"lost", "kept"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := e.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "on-" + name},
			Spec: corev1.PodSpec{
				NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1"}},
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			},
		}
		if _, err := e.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen, err := e.Client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=on-lost"})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	if err := e.Client.CoreV1().Nodes().Delete(t.Context(), "lost", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually("the pod of the deleted node is gone", func(ctx context.Context) error {
		_, err := e.Client.CoreV1().Pods("default").Get(ctx, "on-lost", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("still there"), err)
	})
	if err := lastState(seen); err != nil {
		t.Error(err)
	}
	if pod, err := e.Client.CoreV1().Pods("default").Get(t.Context(), "on-kept", metav1.GetOptions{}); err != nil || pod.DeletionTimestamp != nil {
		t.Errorf("the pod of the other node: %v, %v", pod, err)
	}
}

// lastState checks what the pod said of itself when it went.
func lastState(seen watch.Interface) error {
	for event := range seen.ResultChan() {
		if event.Type != watch.Deleted {
			continue
		}
		pod := event.Object.(*corev1.Pod)
		if pod.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("the pod went in phase %s, want Failed", pod.Status.Phase)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Reason == "DeletionByPodGC" && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("the pod went without saying that it was disrupted: %v", pod.Status.Conditions)
	}
	return errors.New("the pod's deletion was not seen")
}
