package daemonset

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

func testNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func testDaemonSet(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	one, none, limit := intstr.FromInt32(1), intstr.FromInt32(0), int32(10)
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1, Annotations: map[string]string{
			appsv1.DeprecatedTemplateGeneration: "1", "kubernetes.io/change-cause": "first"}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}},
			},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one, MaxSurge: &none}},
			RevisionHistoryLimit: &limit,
		},
	}
}

// setImage edits the template as `kubectl set image` does.
func setImage(t *testing.T, a *fakeAPI, name, image string) {
	t.Helper()
	edit(t, a, "default", name, func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.Containers[0].Image = image
		ds.Generation++
	})
}

// settled waits until the status says that n nodes run the newest template.
func settled(t *testing.T, a *fakeAPI, name string, n int32) *appsv1.DaemonSet {
	t.Helper()
	var out *appsv1.DaemonSet
	eventually(t, func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		ds, err := get[*appsv1.DaemonSet](a, kindDaemonSet, "default", name)
		if err != nil {
			return err.Error()
		}
		out = ds
		want := fact.Status{ObservedGeneration: ds.Generation, Desired: n, Current: n, Ready: n, Updated: n, Available: n}
		if got := fact.StatusOf(&ds.Status); got != want {
			return fmt.Sprintf("status of %s is %v, want %v", name, got, want)
		}
		return ""
	})
	return out
}

func images(a *fakeAPI) map[string]int {
	out := map[string]int{}
	for _, p := range list[*corev1.Pod](a, kindPod) {
		out[p.Spec.Containers[0].Image]++
	}
	return out
}

func TestOnePodPerNode(t *testing.T) {
	a := newFakeAPI(t)
	for i := range 20 {
		a.add(testNode(fmt.Sprintf("n%02d", i)))
	}
	events := runController(t, a)
	a.add(testDaemonSet("logs"))
	ds := settled(t, a, "logs", 20)

	revisions := list[*appsv1.ControllerRevision](a, kindRevision)
	if len(revisions) != 1 || revisions[0].Revision != 1 {
		t.Fatalf("there are %d revisions, want the first one only", len(revisions))
	}
	hash := revisions[0].Labels[appsv1.ControllerRevisionHashLabelKey]
	if revisions[0].Name != "logs-"+hash || revisions[0].Annotations["kubernetes.io/change-cause"] != "first" {
		t.Errorf("revision is %s with annotations %v", revisions[0].Name, revisions[0].Annotations)
	}
	onNode := map[string]int{}
	for _, p := range list[*corev1.Pod](a, kindPod) {
		onNode[p.Spec.NodeName]++
		if p.GenerateName != "logs-" || !strings.HasPrefix(p.Name, "logs-") {
			t.Errorf("pod is named %s, generated from %q", p.Name, p.GenerateName)
		}
		if p.Labels["app"] != "logs" || p.Labels[appsv1.ControllerRevisionHashLabelKey] != hash || p.Labels["pod-template-generation"] != "1" {
			t.Errorf("pod %s has labels %v", p.Name, p.Labels)
		}
		if ref := metav1.GetControllerOf(p); ref == nil || ref.UID != ds.UID || ref.APIVersion != "apps/v1" || !*ref.BlockOwnerDeletion {
			t.Errorf("pod %s has controller %v", p.Name, ref)
		}
		if len(p.Spec.Tolerations) != 6 || p.Spec.Tolerations[5].Key != corev1.TaintNodeUnschedulable {
			t.Errorf("pod %s tolerates %v", p.Name, p.Spec.Tolerations)
		}
	}
	if len(onNode) != 20 {
		t.Errorf("pods are on %d nodes, want 20: %v", len(onNode), onNode)
	}
	expectEvent(t, events, "Normal SuccessfulCreate Created pod: logs-")

	a.add(testNode("new"))
	settled(t, a, "logs", 21)
}

// expectEvent looks for an event among those that were recorded so far.
func expectEvent(t *testing.T, events *record.FakeRecorder, prefix string) {
	t.Helper()
	var seen []string
	for {
		select {
		case e := <-events.Events:
			if strings.HasPrefix(e, prefix) {
				return
			}
			seen = append(seen, e)
		default:
			t.Errorf("no event begins with %q; seen: %q", prefix, seen)
			return
		}
	}
}

func TestRollingUpdateAndRollback(t *testing.T) {
	a := newFakeAPI(t)
	for i := range 10 {
		a.add(testNode(fmt.Sprintf("n%02d", i)))
	}
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 10)
	setImage(t, a, "logs", "demo:v2")
	settled(t, a, "logs", 10)
	if got := images(a); got["demo:v2"] != 10 {
		t.Fatalf("images are %v, want demo:v2 ten times", got)
	}
	setImage(t, a, "logs", "demo:v1")
	settled(t, a, "logs", 10)
	if got := images(a); got["demo:v1"] != 10 {
		t.Fatalf("images are %v, want demo:v1 ten times", got)
	}
	numbers := map[int64]bool{}
	for _, r := range list[*appsv1.ControllerRevision](a, kindRevision) {
		numbers[r.Revision] = true
	}
	if len(numbers) != 2 || !numbers[2] || !numbers[3] {
		t.Errorf("revision numbers are %v, want 2 and 3: going back gives the first revision a new number", numbers)
	}
}

func TestCreationIsRepeatedUntilAllowed(t *testing.T) {
	a := newFakeAPI(t)
	for i := range 5 {
		a.add(testNode(fmt.Sprintf("n%d", i)))
	}
	refused := 0
	a.refuseCreate = func(p *corev1.Pod) error {
		refused++
		if refused <= 3 {
			return apierrors.NewForbidden(resource[kindPod], p.Name, fmt.Errorf("exceeded quota"))
		}
		return nil
	}
	events := runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 5)
	expectEvent(t, events, "Warning FailedCreate Error creating: pods \"logs-")
}

// A creation whose answer was lost is tried again under the same name and meets
// the pod it made.
func TestLostAnswerMakesNoTwin(t *testing.T) {
	a := newFakeAPI(t)
	a.loseAnswer = func() bool { return true }
	for i := range 5 {
		a.add(testNode(fmt.Sprintf("n%d", i)))
	}
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 5)
	if n := len(list[*corev1.Pod](a, kindPod)); n != 5 {
		t.Errorf("there are %d pods, want 5", n)
	}
}

// A second controller that finds everything as it should be writes nothing.
func TestRestartChangesNothing(t *testing.T) {
	a := newFakeAPI(t)
	for i := range 5 {
		a.add(testNode(fmt.Sprintf("n%d", i)))
	}
	stop := startController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 5)
	stop()
	a.mu.Lock()
	before := a.version
	a.mu.Unlock()

	runController(t, a)
	// A new node is proof that the second controller works.
	a.add(testNode("new"))
	settled(t, a, "logs", 6)
	a.mu.Lock()
	defer a.mu.Unlock()
	// The node, the pod twice (made, started), and at most three statuses.
	if writes := a.version - before; writes > 6 {
		t.Errorf("the second controller wrote %d times", writes)
	}
}

// A pod that is still going keeps its place: the next one waits for it.
func TestNeverTwoOnANode(t *testing.T) {
	a := newFakeAPI(t)
	a.manualStop = true
	a.add(testNode("n1"))
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)
	old := list[*corev1.Pod](a, kindPod)[0]
	setImage(t, a, "logs", "demo:v2")
	eventually(t, func() string {
		if list[*corev1.Pod](a, kindPod)[0].DeletionTimestamp == nil {
			return "the old pod is not terminating"
		}
		return ""
	})
	// A status write for the new generation follows the deletion; had there been
	// a creation, it would have come with it.
	eventually(t, func() string {
		if ds := list[*appsv1.DaemonSet](a, kindDaemonSet)[0]; ds.Status.ObservedGeneration != ds.Generation {
			return "the new generation is not observed"
		}
		return ""
	})
	if pods := list[*corev1.Pod](a, kindPod); len(pods) != 1 {
		t.Fatalf("there are %d pods while the old one is going", len(pods))
	}
	a.erase(kindPod, "default", old.Name)
	settled(t, a, "logs", 1)
}

func TestSelectingAllIsRefused(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	events := runController(t, a)
	ds := testDaemonSet("all")
	ds.Spec.Selector = &metav1.LabelSelector{}
	a.add(ds)
	a.add(testDaemonSet("witness"))
	settled(t, a, "witness", 1)
	expectEvent(t, events, "Warning SelectingAll This daemon set is selecting all pods. A non-empty selector is required.")
	if got := list[*corev1.Pod](a, kindPod); len(got) != 1 {
		t.Errorf("there are %d pods, want the witness's only", len(got))
	}
}

func TestDump(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	c, err := New(Config{Informers: a, Writer: a, Recorder: record.NewFakeRecorder(1000)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)
	// The answer to the creation may be taken in after the pod's events.
	eventually(t, func() string {
		s, err := c.Dump(ctx)
		if err != nil {
			return err.Error()
		}
		if len(s.Rows) != 1 || len(s.Rows[0].Cells) != 1 || s.Rows[0].Cells[0].Because != row.AsWanted {
			return fmt.Sprintf("dump is\n%s", s)
		}
		return ""
	})
}

func TestConfigMustBeComplete(t *testing.T) {
	_, err := New(Config{Workers: -1})
	for _, missing := range []string{"Informers", "Writer", "Recorder", "Workers"} {
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("the error %v does not name %s", err, missing)
		}
	}
}

// BenchmarkCreate is a DaemonSet that appears in a fleet, until its status says
// that all is well.
func BenchmarkCreate(b *testing.B) {
	for b.Loop() {
		a, stop := startFakeAPI()
		for i := range 1000 {
			a.add(testNode(fmt.Sprintf("n%04d", i)))
		}
		c, err := New(Config{Informers: a, Writer: a, Recorder: record.NewFakeRecorder(10000)})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		a.add(testDaemonSet("logs"))
		for list[*appsv1.DaemonSet](a, kindDaemonSet)[0].Status.NumberAvailable != 1000 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		<-done
		stop()
	}
}
