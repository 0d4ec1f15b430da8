package daemonset

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// testOwner is an owner without goroutines around it.
func testOwner(t *testing.T) *owner {
	t.Helper()
	c, err := New(Config{Informers: &fakeAPI{}, Writer: &fakeAPI{}, Recorder: record.NewFakeRecorder(100)})
	if err != nil {
		t.Fatal(err)
	}
	o := newOwner(c.cfg, &c.own, c.buffer, c.metrics, lanes{})
	o.matrix.Step(fact.Now{Time: c.cfg.Clock.Now()})
	return o
}

func daemonPod(uid string) *corev1.Pod {
	owner := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", UID: "ds"}}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, belongings.Kind)}}}
	p.UID = types.UID(uid)
	p.Spec.NodeName = "n1"
	return p
}

// auditAll takes one audit to its end.
func auditAll(o *owner) {
	for o.audit(); o.auditing.under; {
		o.audit()
	}
}

// An audit comes to its end also while events never end.
func TestAuditAmongEvents(t *testing.T) {
	o := testOwner(t)
	now := clocktesting.NewFakeClock(time.Now())
	o.cfg.Clock = now
	o.audit()
	for events := 0; o.auditing.under; events++ {
		if events > 100 {
			t.Fatal("it does not go on while there are events")
		}
		now.Step(time.Millisecond)
		o.buffer.nudge()
		o.wait(t.Context(), nil, nil)
	}
}

// The audit finds what the matrix missed and what it should not know any more,
// counts it, and after that finds nothing.
func TestAuditMendsDrift(t *testing.T) {
	o := testOwner(t)
	known, missed := daemonPod("known"), daemonPod("missed")
	o.book.Step(belongings.Pod{Object: known})
	o.book.Step(belongings.Pod{Object: missed})
	o.matrix.Step(fact.PodGone(missed.UID))
	o.matrix.Step(fact.Pod{UID: "ghost", Owner: "ds", Node: "n1"})

	auditAll(o)
	if n := testutil.ToFloat64(o.metrics.AuditDrift); n != 2 {
		t.Errorf("the audit found %v differences, want 2", n)
	}
	if _, ok := o.matrix.Pod(missed.UID); !ok {
		t.Error("the missed pod is still not known")
	}
	if _, ok := o.matrix.Pod("ghost"); ok {
		t.Error("the pod that does not exist is still known")
	}
	auditAll(o)
	if n := testutil.ToFloat64(o.metrics.AuditDrift); n != 2 {
		t.Errorf("a second audit found %v more differences", n-2)
	}
	if findings, done := o.matrix.AuditSlice(1000); !done || len(findings) > 0 {
		t.Errorf("the matrix itself has drifted: %q", findings)
	}
}
