package steps

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/history"
)

func policy() *v1alpha1.RolloutPolicy {
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 1}}
	p.Spec.Waves = []v1alpha1.Wave{
		{Name: "canary", Count: ptr.To[int32](3)}, {Name: "tenth", Percent: ptr.To[int32](10)}, {Name: "zones", Each: "zone"},
	}
	return p
}

func revision(t *testing.T) *appsv1.ControllerRevision {
	t.Helper()
	template := &corev1.PodTemplateSpec{}
	template.Spec.NodeSelector = map[string]string{"pool": "a"}
	raw, err := history.Patch(template)
	if err != nil {
		t.Fatal(err)
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "r", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "r"}},
		Data:       runtime.RawExtension{Raw: json.RawMessage(raw)},
	}
}

func anyNode(r *rand.Rand, i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n-%02d", i), Labels: map[string]string{
		"pool": string("aab"[r.IntN(3)]), "zone": string("xy"[r.IntN(2)]),
	}}}
	if r.IntN(4) == 0 {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
	}
	return n
}

func anyPod(r *rand.Rand, i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i)), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "DaemonSet", UID: "ds", Controller: ptr.To(true),
		}}},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("n-%02d", r.IntN(40))},
	}
}

// TestWhatIsAskedEarlyIsTheSame has anything happen, with questions between, and compares with a book that is told
// everything at once and asked then.
func TestWhatIsAskedEarlyIsTheSame(t *testing.T) {
	by, p := revision(t), policy()
	selected := 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := New()
		nodes, pods := map[string]*corev1.Node{}, map[types.UID]*corev1.Pod{}
		for range 400 {
			switch r.IntN(6) {
			case 0, 1:
				n := anyNode(r, r.IntN(40))
				nodes[n.Name] = n
				b.SetNode(n)
			case 2:
				name := fmt.Sprintf("n-%02d", r.IntN(40))
				delete(nodes, name)
				b.DeleteNode(name)
			case 3:
				o := anyPod(r, r.IntN(60))
				pods[o.UID] = o
				b.SetPod(o)
			case 4:
				uid := types.UID(fmt.Sprint(r.IntN(60)))
				delete(pods, uid)
				b.DeletePod(uid)
			case 5:
				_, _, _ = b.Step("ds", p, by, "n-01") // so that the fleet is kept from here on
			}
		}
		naive := New()
		for _, n := range nodes {
			naive.SetNode(n)
		}
		for _, o := range pods {
			naive.SetPod(o)
		}
		for i := range 40 {
			name := fmt.Sprintf("n-%02d", i)
			_, is, err := b.Step("ds", p, by, name)
			_, want, naiveErr := naive.Step("ds", p, by, name)
			if is != want || (err == nil) != (naiveErr == nil) {
				t.Fatalf("seed %d: %s is in %+v (%v), told at once in %+v (%v)", seed, name, is, err, want, naiveErr)
			}
			if err == nil {
				selected++
			}
		}
	}
	if selected < 100 {
		t.Errorf("only %d nodes were selected", selected)
	}
}
