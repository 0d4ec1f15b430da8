package daemonset

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// answers lists and watches as it is told to.
type answers struct{ err error }

func (a *answers) listWatch() toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &v1alpha1.RolloutPolicyList{}, a.err
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watch.NewFake(), a.err
		},
	}
}

func TestALostWatchIsNoticed(t *testing.T) {
	a, clock := &answers{}, clocktesting.NewFakeClock(time.Now())
	w := NewWatches(clock)
	seen := toolscache.ToListerWatcherWithContext(w.Of(a.listWatch(), &v1alpha1.RolloutPolicy{}))
	lost := func(after time.Duration, words string) {
		t.Helper()
		clock.Step(after)
		if got := w.Lost(&v1alpha1.RolloutPolicy{}); (got == "") != (words == "") || !strings.Contains(got, words) {
			t.Fatalf("it says %q, want %q", got, words)
		}
	}
	open := func() watch.Interface {
		t.Helper()
		if _, err := seen.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := seen.WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := open()
	lost(24*time.Hour, "")
	first.Stop()
	first.Stop()
	lost(patience-time.Second, "") // a server restarts
	second := open()
	lost(24*time.Hour, "")
	second.Stop()
	a.err = errors.New("connection refused")
	if _, err := seen.WatchWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatal("a watch that is refused passes for one that is open")
	}
	lost(patience-time.Second, "")
	lost(time.Second, "RolloutPolicies cannot be read: connection refused")
	a.err = nil
	third := open()
	lost(settling-time.Second, "connection refused") // until what happened is taken in
	lost(time.Second, "")
	third.Stop()
	for _, words := range []string{"", "there is none open"} { // who may list, and not watch
		lost(patience/2, words)
		if _, err := seen.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhoMayNotListIsToldAtOnce(t *testing.T) {
	a, clock := &answers{}, clocktesting.NewFakeClock(time.Now())
	w := NewWatches(clock)
	seen := toolscache.ToListerWatcherWithContext(w.Of(a.listWatch(), &v1alpha1.DaemonSetRollout{}))
	for _, err := range []error{
		apierrors.NewForbidden(resource[kindRollout], "", errors.New("no right")),
		apierrors.NewNotFound(resource[kindRollout], ""),
	} {
		a.err = err
		_, _ = seen.ListWithContext(t.Context(), metav1.ListOptions{})
		if got := w.Lost(&v1alpha1.DaemonSetRollout{}); !strings.Contains(got, err.Error()) {
			t.Errorf("it says %q", got)
		}
		if got := w.Lost(&v1alpha1.RolloutPolicy{}); got != "" {
			t.Errorf("of another kind it says %q", got)
		}
		a.err = nil
		got, _ := seen.WatchWithContext(t.Context(), metav1.ListOptions{})
		clock.Step(settling)
		if got := w.Lost(&v1alpha1.DaemonSetRollout{}); got != "" {
			t.Errorf("it can be watched, and it says %q", got)
		}
		got.Stop()
	}
	pods := a.listWatch()
	if w.Of(pods, &corev1.Pod{}) != pods {
		t.Error("other kinds are looked at")
	}
}

// unreadable is an informer of a kind that nobody may list.
type unreadable struct{}

func (unreadable) Name() string          { return "unreadable" }
func (unreadable) Done() <-chan struct{} { return nil }

func TestSightOfWhatWasNeverRead(t *testing.T) {
	a, clock := &answers{err: apierrors.NewForbidden(resource[kindPolicy], "", errors.New("no right"))}, clocktesting.NewFakeClock(time.Now())
	w := NewWatches(clock)
	seen := toolscache.ToListerWatcherWithContext(w.Of(a.listWatch(), &v1alpha1.RolloutPolicy{}))
	s := sight{watches: w, kinds: []ownKind{{source: ownSources[0], synced: unreadable{}}}}
	_, _ = seen.ListWithContext(t.Context(), metav1.ListOptions{})
	if !s.wait(t.Context(), clock) {
		t.Fatal("it does not begin")
	}
	if got, _ := s.look(); !strings.Contains(got.Policies, "no right") || got.Rollouts != "" {
		t.Errorf("it says %+v", got)
	}
	a.err = nil
	if _, err := seen.WatchWithContext(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Hour)
	if got, _ := s.look(); got.Policies != "RolloutPolicies have not been read yet" {
		t.Errorf("it says %+v", got)
	}
	s.watches = nil
	if got, _ := s.look(); got != (rollouts.Sight{}) {
		t.Errorf("without watches it says %+v", got)
	}
}
