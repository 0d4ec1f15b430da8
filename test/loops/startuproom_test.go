package loops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/scheduler/placement"
)

// A node that lets ordinary pods in while it starts keeps the room of daemons whose group has not begun. When they are
// there the pods that waited for that get what is left, and wait for room as anywhere.
func TestRoomIsKeptForDaemonsToCome(t *testing.T) {
	j := startJoining(t)
	j.daemonSet("cni")
	j.daemonSet("storage")
	body := `{"spec":{"template":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"5"}}}]}}}}`
	_, err := j.Client.AppsV1().DaemonSets("default").Patch(t.Context(), "storage", types.StrategicMergePatchType,
		[]byte(body), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	order := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "order"}}
	order.Spec.Gate = v1alpha1.GateNone
	order.Spec.Groups = []v1alpha1.StartupGroup{groupOf("cni"), groupOf("storage")}
	_, err = j.own.NodeStartups().Create(t.Context(), order, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	j.sick["cni/n"] = true
	j.mu.Unlock()
	j.join("n")
	j.gate("n", "order_1")
	pod := func(name string) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "demo:v1"}}
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		_, err := j.Client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	where := func(name, node, words string) {
		j.Eventually(fmt.Sprintf("%s is on %q", name, node), func(ctx context.Context) error {
			p, err := j.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			said := ""
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled {
					said = c.Message
				}
			}
			if p.Spec.NodeName != node || !strings.Contains(said, words) {
				return fmt.Errorf("it is on %q: %s", p.Spec.NodeName, said)
			}
			return nil
		})
	}
	pod("first")
	where("first", "n", "")
	pod("second")
	where("second", "", placement.TextRoomKept)
	j.heal("cni", "n")
	j.gate("n", "")
	j.Eventually("the storage daemon is there", func(context.Context) error {
		for _, p := range j.podsOn("n") {
			if p.Labels["app"] == "storage" {
				return nil
			}
		}
		return errors.New("it is not")
	})
	where("second", "", "1 Insufficient cpu")
}
