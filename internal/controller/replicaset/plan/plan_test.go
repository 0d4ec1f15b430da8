package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(text string) metav1.Time {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return metav1.NewTime(noon.Add(-d))
}

// aPod makes a running pod on a node of its own, ready for an hour, and changes what
// the words say.
func aPod(name string, words ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web", "tier": "front"}, CreationTimestamp: ago("2h")}}
	p.Spec.NodeName, p.Status.Phase = "node-of-"+name, corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago("1h")}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "unassigned":
			p.Spec.NodeName = ""
		case "node":
			p.Spec.NodeName = value
		case "phase":
			p.Status.Phase = corev1.PodPhase(value)
		case "unready":
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		case "ready-since-ever":
			p.Status.Conditions[0].LastTransitionTime = metav1.Time{}
		case "ready":
			p.Status.Conditions[0].LastTransitionTime = ago(value)
		case "created":
			p.CreationTimestamp = ago(value)
		case "cost":
			p.Annotations = map[string]string{corev1.PodDeletionCost: value}
		case "restarts":
			n, _ := strconv.Atoi(value)
			p.Status.ContainerStatuses[0].RestartCount = int32(n)
		case "sidecar-restarts":
			n, _ := strconv.Atoi(value)
			p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "side", RestartCount: int32(n)}}
		case "terminating":
			p.DeletionTimestamp = ptr.To(ago("1s"))
		case "labels":
			p.Labels = map[string]string{"app": value}
		default:
			panic("unknown word " + word)
		}
	}
	return p
}

func input(replicas int32, pods ...*corev1.Pod) Input {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 3}}
	set.Spec.Replicas = &replicas
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Template.Labels = map[string]string{"app": "web", "tier": "front"}
	return Input{Set: set, Pods: pods, Related: pods, Now: noon}
}

func names(pods []*corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestDecide(t *testing.T) {
	deleting := input(5, aPod("a"))
	deleting.Set.DeletionTimestamp = ptr.To(ago("1s"))
	unset := input(0)
	unset.Set.Spec.Replicas = nil
	var many []*corev1.Pod
	for i := range burst + 10 {
		many = append(many, aPod(fmt.Sprint("p", i)))
	}
	for _, c := range []struct {
		name   string
		in     Input
		create int
		delete int
		reason string
	}{
		{"as wanted", input(2, aPod("a"), aPod("b")), 0, 0, "there are 2 pods, as wanted"},
		{"missing", input(3, aPod("a")), 2, 0, "2 of 3 pods are missing"},
		{"one too many", input(1, aPod("a"), aPod("b")), 0, 1, "1 pods more than the 1 wanted"},
		{"pods that are over do not count", input(2, aPod("a"), aPod("b", "phase=Failed"), aPod("c", "phase=Succeeded")), 1, 0, "1 of 2 pods are missing"},
		{"nor those that are going", input(2, aPod("a"), aPod("b", "terminating")), 1, 0, "1 of 2 pods are missing"},
		{"the set is going", deleting, 0, 0, "the set is being deleted"},
		{"no number is one", unset, 1, 0, "1 of 1 pods are missing"},
		{"many at once", input(burst + 1), burst, 0, "501 of 501 pods are missing"},
		{"many fewer at once", input(0, many...), 0, burst, "510 pods more than the 0 wanted"},
	} {
		got := Decide(c.in)
		if got.Create != c.create || len(got.Delete) != c.delete || got.Reason != c.reason {
			t.Errorf("%s: create %d, delete %d, %q; want %d, %d, %q", c.name, got.Create, len(got.Delete), got.Reason, c.create, c.delete, c.reason)
		}
		if excess := TooMany(c.in); c.in.Set.DeletionTimestamp == nil && excess != (c.delete > 0) {
			t.Errorf("%s: too many is %v", c.name, excess)
		}
	}
}

// Each pod goes before the next one, for one reason only.
func TestOrderOfDeletion(t *testing.T) {
	pods := []*corev1.Pod{
		aPod("unassigned", "unassigned", "phase=Pending", "unready"),
		aPod("unassigned-old", "unassigned", "phase=Running", "cost=9"),
		aPod("pending", "phase=Pending", "unready"),
		aPod("unknown", "phase=Unknown", "unready"),
		aPod("unready", "unready", "cost=100"),
		aPod("not-available", "ready=30s", "cost=100"),
		aPod("cheap", "cost=-5"),
		aPod("crowded-1", "node=shared"),
		aPod("crowded-2", "node=shared", "created=48h"),
		aPod("ready-short", "ready=2m"),
		aPod("restarting", "restarts=3"),
		aPod("restarting-sidecar", "sidecar-restarts=2"),
		aPod("young", "created=61m"),
		aPod("plain-a"),
		aPod("plain-b", "cost=not-a-number"),
		aPod("old", "created=200h"),
		aPod("long-ready", "ready=100h", "created=101h"),
		aPod("costly", "cost=7"),
	}
	want := "unassigned unassigned-old pending unknown unready not-available cheap crowded-1 crowded-2 ready-short restarting restarting-sidecar young plain-a plain-b old long-ready costly"
	rapid.Check(t, func(rt *rapid.T) {
		in := input(0, rapid.Permutation(pods).Draw(rt, "pods")...)
		in.Set.Spec.MinReadySeconds = 60
		if got := names(Decide(in).Delete); got != want {
			rt.Fatalf("the order is\n%s, want\n%s", got, want)
		}
	})
}

// Pods of related sets crowd a node too.
func TestNeighboursOfOtherSets(t *testing.T) {
	in := input(1, aPod("a"), aPod("b"))
	in.Related = append(in.Related, aPod("old-b", "node=node-of-b"), aPod("gone-a", "node=node-of-a", "phase=Failed"), aPod("going-a", "node=node-of-a", "terminating"))
	if got := names(Decide(in).Delete); got != "b" {
		t.Errorf("deleted is %s, want b, which shares its node", got)
	}
}

// Pods of about the same age go in an order that is not by age.
func TestAgesCountByPowersOfTwo(t *testing.T) {
	in := input(1, aPod("a", "ready=70m", "created=80m"), aPod("b", "ready=60m", "created=75m"))
	if got := names(Decide(in).Delete); got != "a" {
		t.Errorf("deleted is %s, want a: the ages are about the same, and its UID is smaller", got)
	}
}

func TestObserve(t *testing.T) {
	in := input(9, aPod("ready"), aPod("fresh", "ready=20s"), aPod("fresher", "ready=5s"), aPod("unready", "unready"), aPod("half-labelled", "labels=web"),
		aPod("going", "terminating"), aPod("failed", "phase=Failed"), aPod("failed-going", "phase=Failed", "terminating"), aPod("stray", "labels=other"))
	in.Set.Spec.MinReadySeconds = 30
	in.Set.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Another", Status: corev1.ConditionTrue}}
	r := Observe(in, Change{}, nil)
	s := r.Status
	got := fmt.Sprint(s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, *s.TerminatingReplicas, s.ObservedGeneration, len(s.Conditions))
	if want := "5 4 4 2 1 3 1"; got != want {
		t.Errorf("replicas, labelled, ready, available, terminating, generation and conditions are %s, want %s", got, want)
	}
	if !r.Changed || !r.Next.Equal(noon.Add(10*time.Second)) {
		t.Errorf("changed %v, next at %v; want a change, and again when the next pod becomes available", r.Changed, r.Next)
	}
	in.Set.Status = s
	if r := Observe(in, Change{}, nil); r.Changed {
		t.Errorf("the same status is news: %+v", r.Status)
	}
	in.Set.Generation++
	if r := Observe(in, Change{}, nil); !r.Changed {
		t.Error("a new generation is no news")
	}
}

// Of a pod that does not say since when it is ready, no time can be worked out.
func TestReadyNobodyKnowsSinceWhen(t *testing.T) {
	in := input(1, aPod("a", "ready-since-ever"))
	in.Set.Spec.MinReadySeconds = 30
	if r := Observe(in, Change{}, nil); r.Status.ReadyReplicas != 1 || r.Status.AvailableReplicas != 0 || !r.Next.IsZero() {
		t.Errorf("%d ready, %d available, next at %v; want 1, 0 and never", r.Status.ReadyReplicas, r.Status.AvailableReplicas, r.Next)
	}
}

func TestFailureCondition(t *testing.T) {
	in, no := input(2), errors.New("no quota")
	failed := Observe(in, Change{Create: 2}, no)
	c := failed.Status.Conditions[0]
	if !failed.Changed || c.Type != appsv1.ReplicaSetReplicaFailure || c.Status != corev1.ConditionTrue || c.Reason != "FailedCreate" || c.Message != "no quota" || !c.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("the condition is %+v", c)
	}
	in.Set.Status = failed.Status
	if again := Observe(in, Change{Create: 2}, errors.New("other words")); again.Changed || again.Status.Conditions[0].Message != "no quota" {
		t.Errorf("the same failure in other words is news: %+v", again.Status.Conditions)
	}
	if done := Observe(in, Change{}, nil); !done.Changed || len(done.Status.Conditions) != 0 {
		t.Errorf("the failure stays after all went well: %+v", done.Status.Conditions)
	}
	in = input(0, aPod("a"))
	if got := Observe(in, Change{Delete: in.Pods}, no).Status.Conditions[0].Reason; got != "FailedDelete" {
		t.Errorf("the reason is %s, want FailedDelete", got)
	}
}
