package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// input reads a set and its pods: NUMBER and words, such as "0 1:old 2:unready,going".
func input(replicas int32, pods string, words ...string) Input {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "web", Generation: 3}}
	set.Spec.Replicas, set.Spec.ServiceName = &replicas, "webs"
	set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{}}
	in := Input{Set: set, Update: Revision{"web-new", &corev1.PodTemplateSpec{}}, Current: Revision{"web-old", &corev1.PodTemplateSpec{}}, Now: noon}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		n := intstr.Parse(value)
		switch key {
		case "parallel":
			set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		case "ondelete":
			set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		case "partition":
			set.Spec.UpdateStrategy.RollingUpdate.Partition = &n.IntVal
		case "unavailable":
			set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &n
		case "start":
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: n.IntVal}
		case "minready":
			set.Spec.MinReadySeconds = n.IntVal
		case "settled":
			in.Current = in.Update
		}
	}
	for _, text := range strings.Fields(pods) {
		number, words, _ := strings.Cut(text, ":")
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-" + number, UID: types.UID(number), Labels: map[string]string{
			"statefulset.kubernetes.io/pod-name": "web-" + number, "apps.kubernetes.io/pod-index": number, "controller-revision-hash": "web-new"}}}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-10 * time.Second))}}
		for w := range strings.SplitSeq(words, ",") {
			switch w {
			case "old":
				p.Labels["controller-revision-hash"] = "web-old"
			case "unready":
				p.Status.Conditions[0].Status = corev1.ConditionFalse
			case "going":
				p.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
			case "failed":
				p.Status.Phase = corev1.PodFailed
			case "unmarked":
				delete(p.Labels, "apps.kubernetes.io/pod-index")
			}
		}
		in.Pods = append(in.Pods, p)
	}
	return in
}

func show(s Step) string {
	var out []string
	for what, pods := range map[string][]*corev1.Pod{"create": s.Create, "delete": s.Delete, "mark": s.Mark} {
		for _, p := range pods {
			out = append(out, what+" "+strings.TrimPrefix(p.Name, "web-"))
		}
	}
	return strings.Join(out, ", ")
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Input
		want string
	}{
		{"the first", input(3, ""), "create 0"},
		{"the second when the first is ready", input(3, "0"), "create 1"},
		{"not before", input(3, "0:unready"), ""},
		{"nor before it is available", input(3, "0", "minready=30"), ""},
		{"all at once", input(3, "1:unready", "parallel"), "create 0, create 2"},
		{"as wanted", input(2, "0 1"), ""},
		{"one that failed", input(3, "0 1:failed 2"), "delete 1"},
		{"failed ones at once", input(3, "0:failed 1:failed 2", "parallel"), "delete 0, delete 1"},
		{"one is going", input(3, "0:going 1"), ""},
		{"fewer", input(1, "0 1 2"), "delete 2"},
		{"fewer, one at a time", input(1, "0 1 2:going"), ""},
		{"fewer, while one is not ready", input(1, "0:unready 1 2"), ""},
		{"fewer, and the lowest of them is not ready", input(1, "0 1:unready 2"), "delete 2"},
		{"fewer, and two are not ready", input(1, "0 1:unready 2:unready"), ""},
		{"fewer at once", input(1, "0:unready 1 2:unready", "parallel"), "delete 2, delete 1"},
		{"from another number on", input(2, "0 1 5", "start=5"), "create 6"},
		{"the numbers before go", input(2, "0 1 5 6", "start=5"), "delete 1"},
		{"without its labels", input(2, "0 1:unmarked"), "mark 1"},
		{"an update begins at the end", input(3, "0:old 1:old 2:old"), "delete 2"},
		{"and waits", input(3, "0:old 1:old 2:unready"), ""},
		{"and goes on", input(3, "0:old 1:old 2"), "delete 1"},
		{"down to the partition", input(3, "0:old 1:old 2", "partition=2"), ""},
		{"the partition counts from the first", input(3, "5:old 6:old 7", "start=5", "partition=7"), ""},
		{"several at a time", input(4, "0:old 1:old 2:old 3:old", "unavailable=2"), "delete 3, delete 2"},
		{"a share at a time", input(4, "0:old 1:old 2:old 3:old", "unavailable=60%"), "delete 3, delete 2, delete 1"},
		{"no more than may be down", input(4, "0:old 1:old 2:old 3:unready", "unavailable=2", "parallel"), "delete 2"},
		{"what is broken goes first", input(3, "0:old,unready 1:old 2:old", "parallel"), "delete 0"},
		{"broken new ones stop it", input(3, "0:old,unready 1:old 2:unready", "parallel"), ""},
		{"only when somebody deletes", input(3, "0:old 1:old 2:old", "ondelete"), ""},
		{"a stranger", input(1, "0 x 01"), ""},
	} {
		step := Next(c.in)
		got := show(step)
		if got != c.want {
			t.Errorf("%s: %q, want %q (%s)", c.name, got, c.want, step.Reason)
		}
		if step.Reason == "" {
			t.Errorf("%s: no reason", c.name)
		}
	}
}

func TestNewPods(t *testing.T) {
	in := input(3, "0:old", "partition=2")
	p := Next(in).Create[0]
	if got := fmt.Sprint(p.Name, p.Spec.Hostname, p.Spec.Subdomain, p.Labels); got != "web-1web-1websmap[apps.kubernetes.io/pod-index:1 controller-revision-hash:web-old statefulset.kubernetes.io/pod-name:web-1]" {
		t.Errorf("the pod is %s", got)
	}
	if p := Next(input(3, "0:old 1:old", "partition=2")).Create[0]; p.Labels["controller-revision-hash"] != "web-new" {
		t.Errorf("the pod above the partition has revision %s", p.Labels["controller-revision-hash"])
	}
}

func TestStatus(t *testing.T) {
	for pods, want := range map[string]string{
		"0:old 1:old 2":       "replicas 3 ready 3 available 3 current 2 updated 1 web-old web-new",
		"0 1 2":               "replicas 3 ready 3 available 3 current 3 updated 3 web-new web-new",
		"0 1 2:unready":       "replicas 3 ready 2 available 2 current 0 updated 3 web-old web-new",
		"0:old 1:old,going":   "replicas 2 ready 2 available 2 current 1 updated 0 web-old web-new",
		"0:old 1:old 2 3:old": "replicas 4 ready 4 available 4 current 3 updated 1 web-old web-new",
	} {
		in := input(3, pods)
		in.Hold = true
		s := Next(in).Status
		if got := fmt.Sprintf("replicas %d ready %d available %d current %d updated %d %s %s", s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas, s.CurrentRevision, s.UpdateRevision); got != want {
			t.Errorf("%s: %s, want %s", pods, got, want)
		}
		in.Set.Status = *s
		if Next(in).Status != nil {
			t.Errorf("%s: the same status is news", pods)
		}
	}
	in := input(1, "0", "minready=30", "settled")
	in.Set.Status = *Next(in).Status
	if next := Next(in).Next; !next.Equal(noon.Add(20*time.Second)) || in.Set.Status.AvailableReplicas != 0 {
		t.Errorf("%d are available, next at %v", in.Set.Status.AvailableReplicas, next)
	}
}

// Whatever there is, it comes to what is wanted; on the way, pods are made and removed
// in order, and no more are down than may be.
func TestComesToItsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		replicas, start := rapid.Int32Range(0, 5).Draw(rt, "replicas"), rapid.IntRange(0, 2).Draw(rt, "start")
		ordered := rapid.Bool().Draw(rt, "ordered")
		most := rapid.IntRange(1, 3).Draw(rt, "unavailable")
		words := []string{fmt.Sprint("start=", start), fmt.Sprint("unavailable=", most)}
		if !ordered {
			words = append(words, "parallel")
		}
		var pods []string
		for i := range 8 {
			if word := rapid.SampledFrom([]string{"", "new", "old", "failed", "going"}).Draw(rt, "pod"); word != "" {
				pods = append(pods, fmt.Sprintf("%d:%s", i, word))
			}
		}
		in := input(replicas, strings.Join(pods, " "), words...)
		for range 200 {
			step := Next(in)
			switch {
			case step.Status != nil:
				in.Set.Status = *step.Status
				continue
			case step.Acts():
				if ordered && len(step.Create)+len(step.Delete)+len(step.Mark) > max(1, most) {
					rt.Fatalf("%s at once", show(step))
				}
			}
			for _, p := range step.Create {
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				in.Pods = append(in.Pods, p)
			}
			gone := map[string]bool{}
			for _, p := range in.Pods {
				gone[p.Name] = p.DeletionTimestamp != nil
			}
			for _, p := range step.Delete {
				gone[p.Name] = true
			}
			var left []*corev1.Pod
			for _, p := range in.Pods {
				if !gone[p.Name] {
					left = append(left, p)
				}
			}
			settled := len(left) == len(in.Pods) && !step.Acts()
			in.Pods = left
			if settled {
				break
			}
		}
		if len(in.Pods) != int(replicas) || in.Set.Status.UpdatedReplicas != replicas || in.Set.Status.CurrentRevision != "web-new" {
			rt.Fatalf("%d pods, %d wanted; the status is %+v", len(in.Pods), replicas, in.Set.Status)
		}
	})
}
