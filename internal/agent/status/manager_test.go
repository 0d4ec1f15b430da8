package status

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// writer is an API whose answers the test chooses. Each write is a call; calls wait for the test if gate is set.
type writer struct {
	mu      sync.Mutex
	gate    chan struct{}
	fail    []error
	patched []corev1.PodStatus
	deleted []Pod
	calls   chan string
	// overrule is how many answers say that somebody else made the pod unready, and has
	// set these conditions.
	overrule int
	others   []corev1.PodCondition
}

func newWriter() *writer { return &writer{calls: make(chan string, 100)} }

func (w *writer) next() error {
	if w.gate != nil {
		<-w.gate
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fail) == 0 {
		return nil
	}
	err := w.fail[0]
	w.fail = w.fail[1:]
	return err
}

func (w *writer) PatchStatus(_ context.Context, _ Pod, _, after *corev1.PodStatus) (*corev1.Pod, error) {
	err := w.next()
	defer func() { w.calls <- "patch" }()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patched = append(w.patched, *after)
	version := metav1.ObjectMeta{ResourceVersion: strconv.Itoa(10 * len(w.patched))}
	if w.overrule > 0 {
		w.overrule--
		meddled := readiness(corev1.ConditionFalse)
		meddled.Conditions = append(meddled.Conditions, w.others...)
		return &corev1.Pod{ObjectMeta: version, Status: meddled}, nil
	}
	return &corev1.Pod{ObjectMeta: version, Status: *after}, nil
}

func (w *writer) Delete(_ context.Context, pod Pod) error {
	err := w.next()
	defer func() { w.calls <- "delete" }()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted = append(w.deleted, pod)
	return nil
}

func (w *writer) await(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-w.calls:
		if got != want {
			t.Fatalf("the API got a %s, want a %s", got, want)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("waited in vain for a %s", want)
	}
}

func start(t *testing.T, w Writer) *Manager {
	t.Helper()
	m := New(w)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		m.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return m
}

func testPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
}

func phase(p corev1.PodPhase) corev1.PodStatus { return corev1.PodStatus{Phase: p} }

func TestLatestWins(t *testing.T) {
	w := newWriter()
	w.gate = make(chan struct{})
	m := start(t, w)
	m.Set(testPod(), phase(corev1.PodPending))
	// The first write is under way, or still to come; what is set meanwhile goes out in at most one more.
	w.gate <- struct{}{}
	w.await(t, "patch")
	for _, reason := range []string{"a", "b", "c"} {
		m.Set(testPod(), corev1.PodStatus{Phase: corev1.PodRunning, Reason: reason})
	}
	close(w.gate)
	for {
		w.await(t, "patch")
		w.mu.Lock()
		last := w.patched[len(w.patched)-1].Reason
		w.mu.Unlock()
		if last == "c" {
			break
		}
	}
	if got, _ := m.Get("u"); got.Reason != "c" {
		t.Errorf("newest status %+v, want the one set last", got)
	}
}

func TestSameStatusIsNotWritten(t *testing.T) {
	w := newWriter()
	m := start(t, w)
	m.Set(testPod(), phase(corev1.PodRunning))
	w.await(t, "patch")
	m.Set(testPod(), phase(corev1.PodRunning))
	m.Delete(testPod(), nil)
	w.await(t, "delete")
}

// Somebody else, such as the controller that finds a node lost, changes the status: the node's own word is written again.
func TestMeddlingIsUndone(t *testing.T) {
	w := newWriter()
	m := start(t, w)
	pod := testPod()
	pod.ResourceVersion = "5"
	m.Set(pod, phase(corev1.PodRunning))
	w.await(t, "patch")
	old := pod.DeepCopy() // what a watch that lags still shows
	old.ResourceVersion, old.Status = "7", phase(corev1.PodPending)
	m.Set(old, phase(corev1.PodRunning))
	own := pod.DeepCopy() // the node's own write
	own.ResourceVersion, own.Status = "10", phase(corev1.PodRunning)
	m.Set(own, phase(corev1.PodRunning))
	meddled := pod.DeepCopy()
	meddled.ResourceVersion, meddled.Status = "12", phase(corev1.PodUnknown)
	m.Set(meddled, phase(corev1.PodRunning))
	w.await(t, "patch")
	m.Delete(pod, nil)
	w.await(t, "delete")
	if len(w.patched) != 2 {
		t.Errorf("written %d times, want once at first and once to undo the meddling", len(w.patched))
	}
}

func readiness(s corev1.ConditionStatus) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: s}}}
}

// TestMeddlingDuringAWrite: somebody else makes the pod unready while a write is under
// way, and that is seen before its answer; or it is in the answer only.
func TestMeddlingDuringAWrite(t *testing.T) {
	for _, before := range []corev1.PodStatus{phase(corev1.PodPending), readiness(corev1.ConditionFalse)} {
		w := newWriter()
		w.gate = make(chan struct{})
		m := start(t, w)
		pod := testPod()
		pod.ResourceVersion, pod.Status = "5", before
		m.Set(pod, readiness(corev1.ConditionTrue))
		w.gate <- struct{}{} // the write is under way, and answered with version 10
		meddled := pod.DeepCopy()
		meddled.ResourceVersion, meddled.Status = "11", readiness(corev1.ConditionFalse)
		m.Set(meddled, readiness(corev1.ConditionTrue))
		w.await(t, "patch")
		select {
		case w.gate <- struct{}{}:
			w.await(t, "patch")
		case <-time.After(2 * time.Minute):
			t.Fatalf("the pod was %v before and stays unready", before)
		}
	}
	w := newWriter()
	w.overrule = 1
	m := start(t, w)
	m.Set(testPod(), readiness(corev1.ConditionTrue))
	w.await(t, "patch")
	w.await(t, "patch")
}

// TestConditionsOfOthers: they stay as the API has them, also where the status to write
// was made without knowing of them, and nothing more is written for that.
func TestConditionsOfOthers(t *testing.T) {
	condition := func(kind corev1.PodConditionType, s corev1.ConditionStatus, reason string) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: s, Reason: reason}
	}
	gate, second := condition("example.com/gate", corev1.ConditionTrue, ""), condition("example.com/second", corev1.ConditionTrue, "")
	evicted := condition(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI")
	w := newWriter()
	w.overrule, w.others = 1, []corev1.PodCondition{gate, second, evicted, condition(corev1.PodInitialized, corev1.ConditionTrue, "")}
	m := start(t, w)
	wanted := readiness(corev1.ConditionTrue)
	wanted.Conditions = append(wanted.Conditions, condition("example.com/second", corev1.ConditionFalse, ""))
	m.Set(testPod(), wanted)
	w.await(t, "patch")
	w.await(t, "patch")
	m.Delete(testPod(), nil)
	w.await(t, "delete")
	want := []corev1.PodCondition{wanted.Conditions[0], second, gate, evicted}
	if got := w.patched[1].Conditions; !reflect.DeepEqual(got, want) {
		t.Errorf("written %v, want the node's own conditions and those of others %v", got, want)
	}
	terminated := condition(corev1.DisruptionTarget, corev1.ConditionTrue, corev1.PodReasonTerminationByKubelet)
	if got := merged([]corev1.PodCondition{evicted}, []corev1.PodCondition{terminated}); len(got) != 1 || got[0] != terminated {
		t.Errorf("of a pod that the node terminates is written %v, want %v", got, terminated)
	}
	waits := condition(nodestartup.WaitsCondition, corev1.ConditionTrue, "MachineStarted")
	if got := merged([]corev1.PodCondition{waits}, nil); len(got) != 0 {
		t.Errorf("of a pod that the node does not hold any more is written %v", got)
	}
}

// TestClaimsOfOthers: which claims a pod has got is not for the node to say. The API refuses every status of a node that changes it.
func TestClaimsOfOthers(t *testing.T) {
	pod := testPod()
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("p-gpu")}}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "p-more"}
	w := newWriter()
	m := start(t, w)
	m.Set(pod, phase(corev1.PodRunning))
	w.await(t, "patch")
	m.Delete(pod, nil)
	w.await(t, "delete")
	if got := w.patched[0]; !reflect.DeepEqual(got.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) ||
		!reflect.DeepEqual(got.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus) {
		t.Errorf("written %v and %v", got.ResourceClaimStatuses, got.ExtendedResourceClaimStatus)
	}
}

func TestFailedWriteIsTriedAgain(t *testing.T) {
	w := newWriter()
	w.fail = []error{errors.New("no route"), apierrors.NewInternalError(errors.New("etcd"))}
	m := start(t, w)
	m.Set(testPod(), phase(corev1.PodRunning))
	for range 3 {
		w.await(t, "patch")
	}
	if len(w.patched) != 1 {
		t.Errorf("written %d times, want once after two failures", len(w.patched))
	}
}

func TestDeleteComesAfterTheLastStatus(t *testing.T) {
	w := newWriter()
	m := start(t, w)
	m.Set(testPod(), phase(corev1.PodFailed))
	done := make(chan struct{})
	m.Delete(testPod(), func() { close(done) })
	<-done
	if len(w.patched) != 1 || w.patched[0].Phase != corev1.PodFailed {
		t.Errorf("statuses written: %+v, want the last one before the deletion", w.patched)
	}
	if len(w.deleted) != 1 || w.deleted[0] != (Pod{"ns", "p", types.UID("u")}) {
		t.Errorf("deleted %v, want the pod by its UID", w.deleted)
	}
	if _, ok := m.Get("u"); ok {
		t.Error("the pod is still kept")
	}
}

func TestPodThatIsNotThere(t *testing.T) {
	w := newWriter()
	w.fail = []error{apierrors.NewNotFound(corev1.Resource("pods"), "p")}
	m := start(t, w)
	done := make(chan struct{})
	m.Delete(testPod(), func() { close(done) })
	<-done
	if _, ok := m.Get("u"); ok {
		t.Error("the pod is still kept")
	}
}

func TestPatch(t *testing.T) {
	condition := func(t corev1.PodConditionType, s corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: s}
	}
	before := &corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		condition("Gate", corev1.ConditionTrue), condition(corev1.PodReady, corev1.ConditionFalse)}}
	after := &corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		condition(corev1.PodReady, corev1.ConditionTrue), condition("Gate", corev1.ConditionTrue)}}
	raw, err := statusPatch("u-1", before, after)
	if err != nil {
		t.Fatal(err)
	}
	patch := string(raw)
	for _, want := range []string{`"uid":"u-1"`, `"phase":"Running"`, `"conditions":[{"status":"True","type":"Ready"}]`} {
		if !strings.Contains(patch, want) {
			t.Errorf("patch %s lacks %s", patch, want)
		}
	}
	if strings.Contains(patch, `"$patch"`) {
		t.Errorf("patch %s removes something", patch)
	}
}
