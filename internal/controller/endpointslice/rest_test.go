package endpointslice

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestRest(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	took, runs := time.Second, 0
	r := newRested(reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
		runs++
		clock.Step(took)
		return ctrl.Result{}, nil
	}), clock)
	look := func(name string) time.Duration {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	if wait := look("large"); wait != 0 || runs != 1 {
		t.Errorf("at first: wait %v, %d runs; want none, 1", wait, runs)
	}
	clock.Step(time.Second)
	if wait := look("large"); wait != 3*time.Second || runs != 1 {
		t.Errorf("a second later: wait %v, %d runs; want 3s, 1", wait, runs)
	}
	took = time.Millisecond
	for range 2 {
		if wait := look("small"); wait != 0 {
			t.Errorf("another one, which takes little: wait %v", wait)
		}
	}
	clock.Step(3 * time.Second)
	if wait := look("large"); wait != 0 || runs != 4 || len(r.until) != 0 {
		t.Errorf("after its rest: wait %v, %d runs, %d rest; want none, 4, 0", wait, runs, len(r.until))
	}
}
