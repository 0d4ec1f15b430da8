package actors

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/beside"
)

// told counts the events that come through.
type told struct{ events map[string]int }

func (r told) Event(object runtime.Object, eventtype, reason, _ string) {
	r.events[object.(metav1.Object).GetName()+" "+eventtype+" "+reason]++
}

func (r told) Eventf(object runtime.Object, eventtype, reason, _ string, _ ...any) {
	r.Event(object, eventtype, reason, "")
}

func (r told) AnnotatedEventf(object runtime.Object, _ map[string]string, eventtype, reason, _ string, _ ...any) {
	r.Event(object, eventtype, reason, "")
}

func TestGoodNewsIsLimited(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	to := told{map[string]int{}}
	r := NewLimitedRecorder(to, now)
	a := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
	b := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "b"}}
	expect := func(event string, want int) {
		t.Helper()
		if got := to.events[event]; got != want {
			t.Errorf("%q came through %d times, want %d", event, got, want)
		}
	}
	for range 5000 {
		r.Eventf(a, corev1.EventTypeNormal, "Created", "")
		r.Eventf(a, corev1.EventTypeWarning, "Failed", "")
	}
	r.Event(b, corev1.EventTypeNormal, "Created", "")
	r.AnnotatedEventf(a, nil, corev1.EventTypeNormal, "Deleted", "")
	expect("a Normal Created", eventBurst)
	expect("a Warning Failed", 5000)
	expect("b Normal Created", 1)
	expect("a Normal Deleted", 0)
	r.Event(a, corev1.EventTypeNormal, "RolloutComplete", "")
	expect("a Normal RolloutComplete", 1)
	now.SetTime(now.Now().Add(5*time.Minute + time.Second))
	for range 10 {
		r.AnnotatedEventf(a, nil, corev1.EventTypeNormal, "Deleted", "")
	}
	expect("a Normal Deleted", 1)
	for i := range 2 * eventObjects {
		name := fmt.Sprint(i)
		r.Event(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}, corev1.EventTypeNormal,
			"Created", "")
	}
	if r.limiters.Len() > eventObjects {
		t.Errorf("%d objects are remembered, want at most %d", r.limiters.Len(), eventObjects)
	}
}

// TestTheLimitIsTheLibrarys: what it drops after a burst is what is dropped here.
func TestTheLimitIsTheLibrarys(t *testing.T) {
	now := testingclock.NewFakeClock(time.Unix(1000, 0))
	library := record.NewEventCorrelator(now)
	to := told{map[string]int{}}
	ours := NewLimitedRecorder(to, now)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
	for i := range 200 {
		if i > 100 {
			now.Step(time.Minute)
		}
		before := to.events["a Normal Created"]
		ours.Eventf(object, corev1.EventTypeNormal, "Created", "")
		result, err := library.EventCorrelate(&corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "a", UID: "a"}, Type: corev1.EventTypeNormal,
			Reason:  "Created",
			Message: fmt.Sprint(i), LastTimestamp: metav1.NewTime(now.Now()), FirstTimestamp: metav1.NewTime(now.Now()),
		})
		if err != nil {
			t.Fatal(err)
		}
		if passed := to.events["a Normal Created"] > before; passed == result.Skip {
			t.Errorf("event %d: let through %v, by the library %v", i, passed, !result.Skip)
		}
	}
}

// TestFailuresHideNoNews: pods that cannot be deleted, again and again, do not use up what else is told of a DaemonSet.
func TestFailuresHideNoNews(t *testing.T) {
	counted := map[string]bool{}
	for _, reason := range []string{"FailedDelete", "SuccessfulDelete", beside.StoredAsBefore, beside.WrongRevision, "RolloutHalted"} {
		counted[spamKey(&corev1.Event{Reason: reason, InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Name: "a"}})] = true
	}
	if len(counted) != 4 {
		t.Errorf("they are counted apart as %v", counted)
	}
}
