package hostports

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/scheduler/cache"
)

func TestFilter(t *testing.T) {
	pod := func(name string, port int32) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: port}}}}},
		}
	}
	c := cache.New()
	c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	c.SetPod(pod("holder", 80))
	if Filter.Prepare(cache.NewPod(pod("none", 0)), nil) != nil {
		t.Error("a pod without host ports is checked, want no check")
	}
	if verdict := Filter.Prepare(cache.NewPod(pod("other", 81)), nil)(c.Node("n")); !verdict.Passed() {
		t.Errorf("a free port fails: %v", verdict)
	}
	verdict := Filter.Prepare(cache.NewPod(pod("same", 80)), nil)(c.Node("n"))
	if verdict.Passed() || verdict.Reasons[0] != Reason {
		t.Errorf("a taken port gives %+v, want %q", verdict, Reason)
	}
	if verdict.Hopeless {
		t.Error("a taken port is called hopeless, but removing its holder frees it")
	}
}
