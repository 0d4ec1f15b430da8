package nodestartup

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// written keeps what was due.
type written struct {
	Startups
	GateWriter
	due plan.Due
}

// Leaving implements Marker.
func (*written) Leaving(context.Context) (bool, error) { return false, nil }

// WriteDue implements Marker.
func (w *written) WriteDue(_ context.Context, _ *corev1.Node, due plan.Due) error {
	w.due = due
	return nil
}

// TestANodeIsClosedThatWasSeenToCome, though a clock says that it was there before. One that was there when nodes began
// to be watched goes by the clock.
func TestANodeIsClosedThatWasSeenToCome(t *testing.T) {
	scheme := runtime.NewScheme()
	err := v1alpha1.AddToScheme(scheme)
	if err != nil {
		t.Fatal(err)
	}
	created := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s",
		CreationTimestamp: metav1.NewTime(created)}}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n",
		CreationTimestamp: metav1.NewTime(created.Add(-time.Hour))}}
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
	for _, watches := range []bool{true, false} {
		w, clock := &written{}, clocktesting.NewFakeClock(created)
		reader := crfake.NewClientBuilder().WithScheme(scheme).WithObjects(s).Build()
		c, err := newController(nil, reader, Config{Startups: w, Gates: w, Marker: w, Setting: plan.InPlace, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		c.watches = watches
		c.onStartup(t.Context(), nil, s)
		clock.Step(time.Minute)
		c.onNode(nil, n)
		is, err := c.mark(t.Context(), n, clock.Now())
		if err != nil || !is || (w.due.Gate != nil) != watches {
			t.Errorf("it was seen to come: %v; due is %+v (%v)", watches, w.due, err)
		}
		marked := n.DeepCopy()
		marked.Annotations = map[string]string{nodestartup.MarkAnnotation: w.due.Mark.String()}
		c.onNode(n, marked)
		again := n.DeepCopy()
		again.CreationTimestamp = metav1.NewTime(created.Add(-2 * time.Hour))
		if c.arrivals.Vouch(again, s) != again {
			t.Error("that it came is remembered, though somebody has dealt with it")
		}
		c.queue.ShutDown()
	}
}
