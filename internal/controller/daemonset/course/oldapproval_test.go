package course

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Somebody approved a change that was undone in its middle. When the same template comes again, it is asked again.
func TestAnOldApprovalIsNone(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}]"), daemonSet("v1"))
		w.update("v2")
		w.pass(time.Minute)
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "v2", Step: "canary"}})
		w.pass(3 * time.Second)
		w.update("v1") // somebody does not like what he sees
		w.pass(time.Hour)
		w.expect(t, v1alpha1.PhaseComplete, "10 of 10 nodes have revision v1")
		if again {
			w.again()
		}
		w.update("v2")
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseWaitingForApproval, "")
	}
}

// A canary was approved, and failed after that. Who tries the revision again has not approved its next canary.
func TestARetryIsNoApproval(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}]\nfailure: {then: Rollback}"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	approved := &v1alpha1.StepApproval{Revision: "v2", Step: "canary"}
	w.bad = func(r, _ string) string { return map[string]string{"v2": "it crashes"}[r] }
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: approved})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "")
	w.bad = func(string, string) string { return "" }
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: approved, Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "")
}

const asks = "waves: [{name: canary, count: 2, approval: Manual}]\nfailure: {then: Rollback}"

// waiting is a fleet whose canary of v2 waits for approval, in change 2.
func waiting(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, asks), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "the next step begins when it is approved")
	return w
}

func (w *world) approveIn(revision string, change int64) {
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{
		Approved: &v1alpha1.StepApproval{Revision: revision, Step: "canary", Change: change},
	})
}

// What is approved says of which change. It is said why an approval of another one is none, and what to do.
func TestAnApprovalIsOfOneChange(t *testing.T) {
	for change, want := range map[int64]bool{0: true, 1: false, 2: true, 3: false} {
		w := waiting(t)
		w.approveIn("v2", change)
		w.pass(time.Minute)
		if phase, message := w.course.Phase(); (phase == v1alpha1.PhaseComplete) != want {
			t.Errorf("change 2, approval of change %d: %s: %s", change, phase, message)
		}
	}
	w := waiting(t)
	w.approveIn("v2", 1)
	w.expect(t, v1alpha1.PhaseWaitingForApproval,
		"approved; the approval of revision v2 was for an earlier change; approve again")
	w.approveIn("v1", 1)
	if _, message := w.course.Phase(); strings.Contains(message, "earlier") {
		t.Errorf("of an approval of another revision it says %q", message)
	}
}

// The same approval, written once more, is no other one, also where what wrote it knows of no changes and leaves the
// number out. Who names the change, or takes the approval back first, approves.
func TestTheSameApprovalIsNoOther(t *testing.T) {
	for _, first := range []int64{0, 2} {
		for _, restart := range []bool{false, true} {
			w := waiting(t)
			w.approveIn("v2", first)
			w.update("v1")
			w.pass(time.Minute)
			w.update("v2")
			w.pass(time.Minute)
			if restart {
				w.course.spec.Approved.Change = 0 // somebody wrote while no controller ran
				w.again()
			}
			w.approveIn("v2", 0)
			w.pass(time.Minute)
			w.expect(t, v1alpha1.PhaseWaitingForApproval, "earlier change")
			if first == 0 {
				w.approveIn("v2", w.course.Status().Change)
			} else {
				w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
				w.approveIn("v2", 0)
			}
			w.pass(time.Minute)
			w.expect(t, v1alpha1.PhaseComplete, "revision v2")
		}
	}
}

// An approval that is seen before its revision is the target is of no change that comes.
func TestWhatHasNotBegunCannotBeApproved(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, asks), daemonSet("v1"))
	w.approveIn("v2", 0)
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "earlier change")
}

// A release that knew no changes left an approval. It goes on to count for the change that is under way, and for no
// other; and so where such a release ran for a while, and lost the number.
func TestAnApprovalOfAnOlderRelease(t *testing.T) {
	older := func(w *world) v1alpha1.DaemonSetRolloutStatus {
		status := w.course.Status()
		status.Change, status.Approved = 0, nil
		return status
	}
	for _, lost := range []bool{false, true} {
		w := waiting(t)
		w.course.spec.Approved = &v1alpha1.StepApproval{Revision: "v2", Step: "canary"} // no controller has seen it
		if lost {
			w.course.spec.Approved.Change = 2
		}
		w.againFrom(older(w), w.course.policy, Followed, "")
		w.again()
		w.pass(time.Minute)
		if lost { // nobody knows of which change it was
			w.expect(t, v1alpha1.PhaseWaitingForApproval, "earlier change")
		} else {
			w.expect(t, v1alpha1.PhaseComplete, "revision v2")
		}
		for range 4 {
			w.update("v1")
			w.pass(time.Minute)
			w.again()
			w.update("v2")
			w.pass(time.Minute)
			if lost {
				w.expect(t, v1alpha1.PhaseWaitingForApproval, "earlier change")
			}
		}
	}
}

// An approval in use outlives its controller at any moment, and what that had not stored.
func TestAnApprovalInUseOutlivesTheController(t *testing.T) {
	for _, change := range []int64{0, 2} {
		w := waiting(t)
		w.approveIn("v2", change)
		end := w.now.Add(time.Hour)
		for w.on("v2") < 10 && w.now.Before(end) {
			w.crash()
			w.pass(time.Second)
		}
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseComplete, "revision v2")
	}
}

// Who asks for a retry may approve it with the same write, or after it: the retry is a change of its own.
func TestARetryIsApprovedWithIt(t *testing.T) {
	for _, change := range []int64{0, 3} {
		for _, together := range []bool{true, false} {
			w := waiting(t)
			w.bad = func(r, _ string) string { return map[string]string{"v2": "it crashes"}[r] }
			w.approveIn("v2", 2)
			w.pass(time.Minute)
			w.expect(t, v1alpha1.PhaseRolledBack, "")
			w.bad = func(string, string) string { return "" }
			spec := v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}}
			if !together {
				w.course.SetSpec(spec)
			}
			spec.Approved = &v1alpha1.StepApproval{Revision: "v2", Step: v1alpha1.AllSteps, Change: change}
			w.course.SetSpec(spec)
			w.pass(time.Minute)
			w.expect(t, v1alpha1.PhaseComplete, "revision v2")
		}
	}
}

// What people write names one template: another one that was made to have the same revision is not approved, not tried
// again, and not aborted by it.
func TestWhatPeopleWriteNamesOneTemplate(t *testing.T) {
	for _, digest := range []string{"right", "wrong"} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		w.start(policy(t, asks), daemonSet("v1"))
		w.ds.Digest = "right"
		w.update("v2")
		w.pass(time.Minute)
		named := digest == "right"
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{
			Approved: &v1alpha1.StepApproval{Revision: "v2", Digest: digest, Step: v1alpha1.AllSteps},
			Retry:    &v1alpha1.Retry{Revision: "v2", Digest: digest, Count: 1},
		})
		if approved := w.course.state.open.Wave > 0; approved != named {
			t.Errorf("digest %s: approved is %t", digest, approved)
		}
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2", Digest: digest}})
		if w.course.Fails() != named {
			t.Errorf("digest %s: aborted is %t", digest, w.course.Fails())
		}
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2", Digest: "right"}})
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Digest: digest, Count: 2}})
		if w.course.Fails() == named {
			t.Errorf("digest %s: tried again is %t", digest, !w.course.Fails())
		}
	}
}

// approver is who approves, forgets, and restores old files, and knows which changes were approved.
type approver struct {
	*world
	// change counts what begins, as a bystander does; kept is where that was when the status was stored.
	change, kept int64
	of           string
	spec         v1alpha1.DaemonSetRolloutSpec
	approved     map[int64]bool
	written      []*v1alpha1.StepApproval
}

// Whatever is undone, repeated, tried again and written by clients that know no changes, and whenever a controller dies:
// no step begins behind one that waits unless somebody approved it in that very change.
func TestEachChangeIsApproved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &approver{world: newWorld(), change: 1, kept: 1, of: "v1", approved: map[int64]bool{}}
		p.addFleet(1, 1, 4, "v1")
		p.start(policy(t, strings.Replace(asks, "count: 2", "count: 1", 1)), daemonSet("v1"))
		p.save()
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			p.does(t, rapid.IntRange(0, 10).Draw(t, "event"))
			if got := p.course.state.consent.Change(); got != p.change {
				t.Fatalf("it counts %d changes, and there were %d", got, p.change)
			}
			c := p.course
			if c.changing && c.state.open.Wave > 0 && !p.approved[p.change] {
				t.Fatalf("step %s of change %d began, and nobody approved it", c.policy.StepName(c.state.open), p.change)
			}
		}
	})
}

func (p *approver) save() {
	p.store()
	p.kept, p.of = p.change, p.ds.Newest
}

func (p *approver) writes(a *v1alpha1.StepApproval) {
	p.spec.Approved = a
	p.course.SetSpec(p.spec)
	p.save()
}

// retried reports whether the target has failed, and is to be tried again.
func (p *approver) retried() bool {
	f := p.course.failed
	return f != nil && p.course.changing && p.spec.Retry.Revision == f.Revision && p.spec.Retry.Count > f.Retries
}

func (p *approver) does(t *rapid.T, event int) {
	a := p.spec.Approved
	switch event {
	case 0, 1:
		to := rapid.SampledFrom([]string{"v1", "v2", "v3"}).Draw(t, "to")
		if to != p.ds.Newest {
			p.change++
		}
		p.update(to)
	case 2, 3: // what somebody writes who has just looked
		p.save()
		s := p.stored
		next := &v1alpha1.StepApproval{Revision: s.TargetRevision, Step: "canary"}
		if event == 3 {
			next.Change = s.Change
		}
		p.written, p.approved[p.change] = append(p.written, next), true
		p.writes(next)
	case 4: // a client that knows no changes writes something else
		if a != nil {
			p.writes(&v1alpha1.StepApproval{Revision: a.Revision, Step: a.Step})
		}
	case 5: // somebody restores a file
		if len(p.written) > 0 {
			old := rapid.SampledFrom(p.written).Draw(t, "old")
			if old.Change != 0 || a != nil && a.Revision == old.Revision {
				p.writes(old)
			}
		}
	case 6:
		p.spec.Retry = &v1alpha1.Retry{Revision: p.ds.Newest, Count: int32(len(p.written) + 10)}
		if p.retried() {
			p.change++
		}
		p.course.SetSpec(p.spec)
		p.save()
	case 7:
		ill := rapid.SampledFrom([]string{"v2", "v3", ""}).Draw(t, "ill")
		p.bad = func(r, _ string) string { return map[string]string{ill: "it crashes"}[r] }
	case 8:
		p.crash()
		if p.change = p.kept; p.of != p.ds.Newest {
			p.change++
		}
	default:
		p.pass(time.Duration(event) * 5 * time.Second)
		p.save()
	}
}
