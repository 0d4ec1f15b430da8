package doctor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/everynode/everynode/internal/doctor/diagnosis"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Pods that do not start yet are looked for on nodes whose machine started again and that are not open, those of them
// that were closed last; nobody else's pods are asked for.
func TestPodsThatMayNotStartYet(t *testing.T) {
	var nodes []*corev1.Node
	for i := range heldNodes + 5 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%02d", i)}}
		n.Spec.Taints = []corev1.Taint{{Key: nodestartup.TaintKey, Value: "all_1"}}
		n.Annotations = map[string]string{
			nodestartup.ClosedAnnotation: time.Unix(int64(1000+i), 0).UTC().Format(time.RFC3339),
		}
		nodes = append(nodes, n)
	}
	nodes[10].Spec.Taints = nil    // it is open
	nodes[11].Annotations = nil    // it is new
	var want, asked, held []string // n05 and n06 in the place of those
	for i := len(nodes) - 1; len(want) < heldNodes; i-- {
		if i != 10 && i != 11 {
			want = append(want, "spec.nodeName="+nodes[i].Name)
		}
	}
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked = append(asked, a.(clienttesting.ListAction).GetListRestrictions().Fields.String())
		waits := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: asked[len(asked)-1]}}
		waits.Status.Conditions = []corev1.PodCondition{{Type: nodestartup.WaitsCondition, Status: corev1.ConditionTrue,
			Message: "for cni"}}
		return true, &corev1.PodList{Items: []corev1.Pod{waits, {}}}, nil
	})
	l := looker{client: client, seen: &diagnosis.Cluster{Nodes: nodes}}
	err := l.held(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range l.seen.Held {
		held = append(held, p.Name)
	}
	if !slices.Equal(asked, want) || !slices.Equal(held, want) {
		t.Errorf("asked is %q, and held are %q; want %q", asked, held, want)
	}
}
