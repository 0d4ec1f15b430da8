package pulls

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history"
)

// story is what a record is made of.
type story struct{ events []history.Event }

func (s *story) put(o metav1.Object, gone bool) {
	s.events = append(s.events, history.Event{Revision: int64(len(s.events) + 1), Object: o, Deleted: gone})
}

func owned(kind string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: kind, UID: uid, Controller: ptr.To(true)}}
}

// begin has a DaemonSet with daemons on three nodes, of which one may be without.
func begin(unavailable int32) *story {
	s := &story{}
	most := intstr.FromInt32(unavailable)
	s.put(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "set"}, Spec: appsv1.DaemonSetSpec{
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &most}}}}, false)
	for i := range 3 {
		s.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), UID: types.UID(fmt.Sprint("n", i))}}, false)
		uid := types.UID(fmt.Sprint("d", i))
		s.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid, OwnerReferences: owned("DaemonSet", "set")},
			Spec: corev1.PodSpec{NodeName: fmt.Sprint("n", i)}}, false)
	}
	return s
}

// pulls is a pod for the daemon of a node.
func pulls(node int, of string) *corev1.Pod {
	daemon := types.UID(fmt.Sprint("d", node))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("p", node, of), UID: types.UID(fmt.Sprint("p", node, of)), OwnerReferences: owned("Pod", daemon),
			Labels:      map[string]string{"everynode.io/fetches-after": string(daemon)},
			Annotations: map[string]string{"everynode.io/fetches-revision": of},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprint("n", node), AutomountServiceAccountToken: ptr.To(false),
			InitContainers: []corev1.Container{{Image: Image}},
			Containers:     []corev1.Container{{Image: "agent:2", Command: []string{program}}},
			Volumes:        []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

func TestJudgeOfPodsThatPull(t *testing.T) {
	but := func(change func(*corev1.Pod)) *corev1.Pod { p := pulls(0, "b"); change(p); return p }
	for name, c := range map[string]struct {
		unavailable int32
		tell        func(*story)
		want        string
	}{
		"one": {1, func(s *story) { s.put(pulls(0, "b"), false) }, ""},
		"one after another": {1, func(s *story) {
			s.put(pulls(0, "b"), false)
			s.put(pulls(0, "b"), true)
			s.put(pulls(1, "b"), false)
		}, ""},
		"one while another ends": {1, func(s *story) {
			s.put(pulls(0, "b"), false)
			s.put(but(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), false)
			s.put(pulls(1, "b"), false)
		}, ""},
		"two": {1, func(s *story) { s.put(pulls(0, "b"), false); s.put(pulls(1, "b"), false) }, Crowd},
		"two, where a strategy allows it": {2, func(s *story) {
			s.put(pulls(0, "b"), false)
			s.put(pulls(1, "b"), false)
		}, ""},
		"two, where a wave allows it": {1, func(s *story) {
			s.put(&v1alpha1.RolloutPolicy{Spec: v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{
				{MaxUnavailable: ptr.To(intstr.FromString("50%"))}}}}, false)
			s.put(pulls(0, "b"), false)
			s.put(pulls(1, "b"), false)
		}, ""},
		"three there": {1, func(s *story) {
			s.put(&v1alpha1.RolloutPolicy{Spec: v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{
				{MaxUnavailable: ptr.To(intstr.FromString("50%"))}}}}, false)
			for i := range 3 {
				s.put(pulls(i, "b"), false)
			}
		}, Crowd},
		"two of a daemon": {2, func(s *story) {
			s.put(pulls(0, "b"), false)
			s.put(but(func(p *corev1.Pod) { p.UID = "other" }), false)
		}, Second},
		"the daemon's program": {1, func(s *story) {
			s.put(but(func(p *corev1.Pod) { p.Spec.Containers[0].Command = nil }), false)
		}, Runs},
		"arguments": {1, func(s *story) {
			s.put(but(func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"x"} }), false)
		}, Runs},
		"another image that begins": {1, func(s *story) {
			s.put(but(func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "agent:2" }), false)
		}, Runs},
		"a volume of the node": {1, func(s *story) {
			s.put(but(func(p *corev1.Pod) { p.Spec.Volumes[0].EmptyDir = nil }), false)
		}, Runs},
		"a token": {1, func(s *story) {
			s.put(but(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }), false)
		}, Runs},
		"another node": {1, func(s *story) {
			s.put(but(func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), false)
		}, Whose},
		"no daemon": {1, func(s *story) { s.put(pulls(7, "b"), false) }, Whose},
	} {
		s := begin(c.unavailable)
		c.tell(s)
		found, _ := Check(history.Record{Events: s.events})
		var rules []string
		for _, v := range found {
			rules = append(rules, v.Rule)
		}
		if got := strings.Join(rules, "; "); got != c.want {
			t.Errorf("%s: %q, want %q: %v", name, got, c.want, found)
		}
	}
}

func TestPodsThatPulledAreCounted(t *testing.T) {
	s := begin(1)
	p := pulls(0, "b")
	s.put(p, false)
	there := p.DeepCopy()
	there.Status.ContainerStatuses = []corev1.ContainerStatus{{ImageID: "x"}}
	s.put(there, false)
	s.put(pulls(1, "b"), true)
	_, pulled := Check(history.Record{Events: s.events})
	left := Unsettled(history.Record{Events: s.events}.Last())
	if pulled != 1 || len(left) != 1 {
		t.Errorf("%d have pulled, and left are %v", pulled, left)
	}
}
