package course

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// halted is a world in which a canary of two nodes has failed in that way.
func halted(t *testing.T, ail func(d *standing.Daemon)) (w *world, canary []string) {
	w = newWorld()
	w.addFleet(1, 2, 5, "v1")
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}, maxUnavailable: 2, soak: 10s}]\nfailure: {min: 2, restarts: 3, startDeadline: 2m}"), daemonSet("v1"))
	w.starts = time.Hour
	w.update("v2")
	for range 130 {
		w.pass(time.Second)
		for _, name := range w.names() {
			if m := w.nodes[name]; m.daemon.Revision == "v2" && !slices.Contains(canary, name) {
				canary = append(canary, name)
				m.ready = time.Time{}
				ail(&m.daemon)
				w.tell(name)
			}
		}
	}
	w.expect(t, v1alpha1.PhaseHalted, "failed on 2 of 2 nodes")
	return w, canary
}

// A try that somebody asks for is not ended by what was wrong before it, also not by a
// process that starts after it. What goes wrong from then on ends it.
func TestEvidenceCountsFromTheRetryOn(t *testing.T) {
	well := func(w *world, names []string) {
		for _, name := range names {
			m := w.nodes[name]
			m.fault, m.daemon.Trouble, m.daemon.Certain, m.daemon.NoRoom = "", "", false, ""
			m.daemon.Available, m.daemon.Since = true, w.now
			w.tell(name)
		}
	}
	for name, test := range map[string]struct {
		ail, worse func(d *standing.Daemon)
		again      string
		after      time.Duration // that it takes to fail again
	}{
		"restarts": {func(d *standing.Daemon) { d.Restarts, d.Trouble = 7, "exit 1" },
			func(d *standing.Daemon) { d.Restarts += 3 }, "3 restarts: exit 1", 0},
		"an image": {func(d *standing.Daemon) { d.Trouble, d.Certain = "no such image", true },
			func(*standing.Daemon) {}, "not available in time: no such image", 2 * time.Minute},
		"too late": {func(d *standing.Daemon) { d.Bound = d.Bound.Add(-time.Hour) }, func(*standing.Daemon) {},
			"not available in time", 2 * time.Minute},
		"no room": {func(d *standing.Daemon) { d.Bound, d.NoRoom = time.Time{}, "cpu short" },
			func(*standing.Daemon) {}, "there is no room for it: cpu short", 2 * time.Minute},
	} {
		for _, restart := range []bool{false, true} {
			try := func() (*world, []string) {
				w, canary := halted(t, test.ail)
				w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
				w.pass(30 * time.Second)
				if restart {
					w.again()
				}
				w.pass(time.Minute)
				if phase, message := w.course.Phase(); phase != v1alpha1.PhaseProgressing || w.on("v2") != 2 {
					t.Fatalf("%s, restart %t: the try is %s: %s; %d nodes have v2", name, restart, phase, message,
						w.on("v2"))
				}
				return w, canary
			}
			w, canary := try()
			well(w, canary)
			w.starts = time.Second
			w.pass(10 * time.Minute)
			w.expect(t, v1alpha1.PhaseComplete, "10 of 10 nodes have revision v2")
			w, canary = try()
			for _, name := range canary {
				test.worse(&w.nodes[name].daemon)
				w.tell(name)
			}
			w.pass(test.after)
			w.expect(t, v1alpha1.PhaseHalted, "failed on 2 of 2 nodes: "+canary[0]+": "+test.again)
		}
	}
}

// Restarts that begin to be counted anew after a try was asked for count from nothing.
func TestRestartsThatAreCountedAnewCountAfterARetry(t *testing.T) {
	w, canary := halted(t, func(d *standing.Daemon) { d.Restarts, d.Trouble = 7, "exit 1" })
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseProgressing, "")
	for _, restarts := range []int32{0, 3} {
		for _, name := range canary {
			w.nodes[name].daemon.Restarts = restarts
			w.tell(name)
		}
	}
	w.expect(t, v1alpha1.PhaseHalted, "3 restarts: exit 1")
}

// Nodes that fell out of order before the try are none of it.
func TestFaultsFromBeforeTheRetryAreNoEvidence(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 5, "v1")
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}, soak: 20m}]\nfailure: {min: 2}\nnodeFaults: {max: 90%}"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	silent := w.names()[:3]
	for _, name := range silent {
		w.fault(name, "does not answer", true)
	}
	w.pass(time.Second)
	w.expect(t, v1alpha1.PhaseHalted, "it stopped answering")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
	w.pass(time.Minute)
	if phase, message := w.course.Phase(); phase == v1alpha1.PhaseHalted {
		t.Errorf("%s: %s", phase, message)
	}
	for _, name := range silent {
		w.fault(name, "", false)
	}
	w.pass(10 * time.Second)
	for _, name := range silent[:2] {
		w.nodes[name].daemon.Bound = w.now
		w.fault(name, "does not answer", true)
	}
	w.pass(time.Second)
	w.expect(t, v1alpha1.PhaseHalted, "it stopped answering")
}

// What failed does not go out again unasked, also when many others failed since: of the last
// it is known why, of those before that they did. What is older is forgotten, and goes as a
// new one does; new ones are held up by nothing that is forgotten.
func TestWhatFailedLongAgoIsNotTriedUnasked(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 4, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1}]\nfailure: {restarts: 1, then: Rollback}"), daemonSet("v1"))
	w.bad = func(revision, _ string) string {
		if strings.HasPrefix(revision, "bad") {
			return "it restarts"
		}
		return ""
	}
	fails := func(i int) {
		revision := fmt.Sprint("bad", i)
		w.update(revision)
		w.pass(10 * time.Second)
		if w.course.state.Failure(revision) == nil {
			t.Fatalf("%s has not failed: %+v", revision, w.course.Status())
		}
	}
	refused := func(revision, why string) {
		t.Helper()
		given := len(w.given[revision])
		w.update(revision)
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseHalted, why)
		w.again()
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseHalted, why)
		if len(w.given[revision]) != given || w.on(revision) > 0 {
			t.Fatalf("%s goes out again unasked", revision)
		}
	}
	retried := func(revision string, count int32) {
		t.Helper()
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: revision, Count: count}})
		w.pass(time.Minute)
	}
	for i := range 11 {
		fails(i)
	}
	if s := w.course.Status(); len(s.FailedRevisions) != 10 || !slices.Equal(s.EarlierFailures, []string{"bad0"}) ||
		s.ForgottenFailures != 0 {
		t.Fatalf("status %+v", s)
	}
	refused("bad0", "revision bad0 has failed before, too long ago to know how; everynode rollout retry tries it")
	if s := w.course.Status(); len(s.FailedRevisions) != 10 || !slices.Equal(s.EarlierFailures, []string{"bad1"}) {
		t.Errorf("it is there twice, or not at all: %+v", s)
	}
	retried("bad0", 1)
	w.expect(t, v1alpha1.PhaseRolledBack, "it restarts")
	for i := 11; i < 211; i++ {
		fails(i)
	}
	s := w.course.Status()
	if len(s.FailedRevisions) != 10 || len(s.EarlierFailures) != 200 || s.ForgottenFailures != 1 {
		t.Fatalf("%d, %d and %d are remembered", len(s.FailedRevisions), len(s.EarlierFailures), s.ForgottenFailures)
	}
	w.update("v1")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "4 of 4 nodes have revision v1") // the stable one is known
	refused("bad2", "has failed before")
	retried("bad2", 1) // and fails as the newest
	w.expect(t, v1alpha1.PhaseRolledBack, "it restarts")
	fails(1) // nobody knows it any more: it goes as a new one does, and fails on the canary
	if given := w.given["bad1"]; len(given) != 1 || slices.Max(slices.Collect(maps.Values(given))) != 2 {
		t.Errorf("bad1 was given to %v, want to the canary's node once more", given)
	}
	refused("bad4", "has failed before")
	w.update("v2")
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "4 of 4 nodes have revision v2") // a new one waits for nobody
}

// What the try itself makes is judged as always: an image that cannot be pulled ends it at
// once, and does not wait for the deadline.
func TestPodsOfTheRetryAreJudgedAtOnce(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 5, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2}]\nfailure: {startDeadline: 1h, then: Rollback}"),
		daemonSet("v1"))
	pulls := func() {
		for _, name := range w.names() {
			if m := w.nodes[name]; m.daemon.Revision == "v2" {
				m.ready = time.Time{}
				m.daemon.Trouble, m.daemon.Certain = "no such image", true
				w.tell(name)
			}
		}
	}
	try := func() {
		t.Helper()
		w.starts = time.Minute
		w.pass(10 * time.Second)
		pulls()
		w.pass(Lasting)
		w.expect(t, v1alpha1.PhaseRolledBack, "no such image")
		w.starts = time.Second
		w.pass(time.Minute)
		if n := w.on("v1"); n != 10 {
			t.Fatalf("%d nodes have v1", n)
		}
	}
	w.update("v2")
	try()
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
	try()
	if f := w.course.Status().Failures; f == nil || f.Since == nil {
		t.Errorf("the evidence is %+v, and does not say since when it counts", f)
	}
	w.update("v3") // nobody tried that again
	if f := w.course.Status().Failures; f != nil {
		t.Errorf("of the next target it is %+v", f)
	}
}

// A DaemonSet that was deleted and made again with a template that was taken back before has
// nothing to go back to: it says that it is halted, and is tried again as any other.
func TestWhatWasTakenBackHaltsANewDaemonSet(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 5, "")
	w.ds = daemonSet("v2")
	tick(w.course, w.now)
	w.course.SetPolicy(policy(t, "failure: {then: Rollback}"), Followed, "")
	w.tellRules()
	w.course.Start(&v1alpha1.DaemonSetRolloutStatus{FailedRevisions: []v1alpha1.FailedRevision{{Revision: "v2",
		Why: "somebody aborted it", Action: v1alpha1.FailureRollback}}})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseHalted, "revision v2 somebody aborted it")
	if n := w.on("v2"); n > 0 {
		t.Errorf("%d nodes have it", n)
	}
	w.again()
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseHalted, "revision v2 somebody aborted it")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "10 of 10 nodes have revision v2")
}

// A node on which the target was refused goes back to the stable revision, since another policy has it in a later
// step. It has a daemon that works: it uses up no limit.
func TestFailedNodeOfALaterStepHoldsUpNobody(t *testing.T) {
	canary := func(rack string) string {
		return "waves: [{name: canary, nodes: {matchLabels: {rack: " + rack + "}}}]\nfailure: {max: 100%, min: 3}"
	}
	w := newWorld()
	w.addFleet(1, 2, 5, "v1")
	w.start(policy(t, canary("z0-r1")), daemonSet("v1"))
	w.update("v2")
	name := w.take(1)[0].Node
	m := w.nodes[name]
	m.daemon = standing.Daemon{Refused: "the API refuses the pod", RefusedOf: "v2"}
	w.tell(name)
	w.now = w.now.Add(2 * Lasting)
	tick(w.course, w.now)
	if n := w.course.state.failures.Count(); n != 1 {
		t.Fatalf("%d nodes count as failed, want the one whose pod is refused", n)
	}
	w.policy = policy(t, canary("z0-r0"))
	w.course.SetPolicy(w.policy, Followed, "")
	m.daemon = standing.Daemon{}
	w.tell(name)
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "10 of 10 nodes have revision v2")
}

// A node of a later step lost its daemon by a change that went back, and what it is to have until its turn, the stable
// revision, cannot be made there. The target that is tried again is not to blame for that when the step begins.
func TestARefusalOfTheStableRevisionIsNotTheTargets(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 5, "v1")
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}}, {name: others, nodes: {}, maxUnavailable: 1}]\n"+
		"failure: {max: 0, min: 1, startDeadline: 1m, then: Rollback}"), daemonSet("v1"))
	w.update("v2")
	for w.on("v2") < 6 {
		w.pass(time.Second)
	}
	ill := ""
	for name, m := range w.nodes {
		if m.labels["rack"] != "z0-r0" && m.daemon.Revision == "v2" {
			ill = name
		}
	}
	refused := func(name, of string) {
		w.stuck = name
		w.nodes[name].daemon = standing.Daemon{Refused: "it asks for more than its limit", RefusedOf: of, Held: true}
		w.tell(name)
		w.now = w.now.Add(2 * Lasting)
		tick(w.course, w.now)
	}
	refused(ill, "v2")
	w.expect(t, v1alpha1.PhaseRolledBack, "failed on 1")
	refused(ill, "v1")
	w.update("v3")
	w.pass(10 * time.Second)
	w.expect(t, v1alpha1.PhaseProgressing, "step canary")
	if n := w.course.state.failures.Count(); n != 0 {
		t.Errorf("the target fails on %d nodes, none of which has been given it", n)
	}
}

// A DaemonSet is made again around its pods, of which most have a revision that failed: it becomes the stable one for
// that on no account, whatever the policy does with what fails.
func TestWhatFailedIsNotStable(t *testing.T) {
	for _, then := range []string{"Halt", "Rollback"} {
		for _, fleet := range []string{"most", "all"} {
			for _, known := range []bool{true, false} {
				w := newWorld()
				w.addFleet(1, 1, 10, "v2")
				status := v1alpha1.DaemonSetRolloutStatus{EarlierFailures: []string{"v2"}}
				if known {
					status = v1alpha1.DaemonSetRolloutStatus{FailedRevisions: []v1alpha1.FailedRevision{{
						Revision: "v2", Why: "crashes", Action: v1alpha1.FailureAction(then)}}}
				}
				if fleet == "most" {
					w.addFleet(1, 1, 3, "v1") // instead of the first three
				}
				w.ds, w.policy = daemonSet("v2"), policy(t, "failure: {then: "+then+"}")
				w.againFrom(status, w.policy, Followed, "")
				had := w.on("v2")
				for range 2 {
					w.addNode(fmt.Sprint("new-", w.now.Unix()), nil, "")
					w.pass(20 * time.Minute)
					w.expect(t, v1alpha1.PhaseHalted, "revision v2 ")
					if n := w.on("v2"); n != had || w.course.state.stable == "v2" {
						t.Errorf("%s, %s have it: %d nodes have v2, which failed, and %d had it; stable is %q", then,
							fleet, n, had, w.course.state.stable)
					}
					w.crash()
				}
			}
		}
	}
}

// What most nodes run has failed, and works on them: it is not stable, but what comes next does not take their daemons
// without the steps, the approvals and the limits of the policy. A restart changes nothing of that.
func TestWhatFollowsAFirstRevisionThatFailedAsksForSteps(t *testing.T) {
	for _, orphaned := range []bool{false, true} {
		w := newWorld()
		w.bad = func(revision, node string) string {
			if revision == "v1" && node >= "z0-r0-90" {
				return "it crashes"
			}
			return ""
		}
		w.addFleet(1, 1, 100, "")
		p := policy(t, "waves: [{name: canary, count: 2, approval: Manual}]\nfailure: {max: 5%, min: 2, then: Rollback}")
		w.start(p, dsWith("v1", 100))
		w.pass(time.Hour)
		w.expect(t, v1alpha1.PhaseHalted, "failed on")
		if orphaned { // its pods are left, and so is what has failed
			w.ds.Newest = "v2"
			w.againFrom(v1alpha1.DaemonSetRolloutStatus{FailedRevisions: w.course.Status().FailedRevisions}, p,
				Followed, "")
		} else {
			w.update("v2")
		}
		w.pass(time.Minute)
		w.crash()
		w.pass(time.Hour)
		w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
		if n := w.on("v2"); n != 2 {
			t.Errorf("orphaned %t: %d nodes have v2 before the canary is approved", orphaned, n)
		}
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseHalted, "somebody aborted it")
		if v1, v2 := w.on("v1"), w.on("v2"); v1 != 98 || v2 != 2 {
			t.Errorf("orphaned %t: after an abort %d nodes have v1, %d v2", orphaned, v1, v2)
		}
		w.update("v3")
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "v3",
			Step: v1alpha1.AllSteps}})
		w.pass(time.Hour)
		w.expect(t, v1alpha1.PhaseComplete, "100 of 100")
	}
}

func TestALostDaemonWithoutAWayBackHoldsUpNoStep(t *testing.T) {
	w := newWorld()
	w.bad = func(revision, node string) string {
		if revision == "v1" && node >= "z0-r1-02" {
			return "it crashes"
		}
		return ""
	}
	w.addFleet(1, 2, 4, "")
	w.start(policy(t, "waves: [{name: grows, nodes: {matchLabels: {rack: z0-r0}}, ramp: {from: 1}}]\n"+
		"domains: [{key: rack, maxUnavailable: 1}]\nfailure: {min: 2}"), dsWith("v1", 1))
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseHalted, "failed on")
	w.update("v2")
	lost := w.nodes["z0-r0-03"]
	lost.daemon = standing.Daemon{}
	w.tell("z0-r0-03")
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "no node of step grows/1 can take the change")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{
		Approved: &v1alpha1.StepApproval{Revision: "v2", Step: v1alpha1.AllSteps}})
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "8 of 8")
}

// A pod that was let be made, and was not made before somebody gave up on the revision, is under way no longer.
func TestAPodThatIsNotMadeAfterAllHoldsUpNoStep(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 2, "")
	w.start(policy(t, "waves: [{name: first, nodes: {matchLabels: {rack: z0-r0}}}]"), dsWith("v1", 1))
	w.stuck = "z0-r1-01"
	for _, p := range w.take(10) {
		if p.Node != w.stuck {
			w.begin(p)
		}
	}
	w.pass(time.Minute)
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v1"}})
	w.update("v2")
	w.stuck = ""
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "4 of 4")
}

func TestANodeWithoutADaemonGetsWhatStandsInForTheStableRevision(t *testing.T) {
	w := newWorld()
	for i, revision := range []string{"v1", "v1", "v2", "v2", "v2", "v2", "v2", "v3", "", ""} {
		w.addNode(fmt.Sprintf("node-%d", i), nil, revision)
	}
	w.policy = policy(t, "waves: [{name: canary, count: 1, approval: Manual}]")
	w.ds = dsWith("v3", 2)
	steps := v1alpha1.DaemonSetRolloutStatus{TargetRevision: "v3", Step: "canary",
		FailedRevisions: []v1alpha1.FailedRevision{{Revision: "v0"}}}
	w.againFrom(steps, w.policy, Followed, "")
	w.act(0)
	for _, name := range []string{"node-8", "node-9"} {
		if state := w.course.nodes[name].view.State; state != standing.Starting ||
			w.nodes[name].daemon.Revision != "v2" {
			t.Errorf("%s: state %d, with %+v; want v2 to start", name, state, w.nodes[name].daemon)
		}
	}
	if got := w.take(10); len(got) > 0 {
		t.Errorf("%+v begins, and two nodes are without a daemon already", got)
	}
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	if v2, v3 := w.on("v2"), w.on("v3"); v2 < 6 || v3 > 2 {
		t.Errorf("%d nodes have v2, %d have v3; want those that were without a daemon to have v2", v2, v3)
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{
		Approved: &v1alpha1.StepApproval{Revision: "v3", Step: v1alpha1.AllSteps}})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "10 of 10")
}

// A node that lost its daemon, whose revision cannot be read any more, gets one in its own step. Who shares a rack with
// it does not hold up the steps before that.
func TestALostDaemonOfALostRevisionHoldsUpNoStep(t *testing.T) {
	w := newWorld()
	w.addNode("first", map[string]string{"rack": "r", "pool": "canary"}, "v1")
	w.addNode("lost", map[string]string{"rack": "r"}, "v1")
	w.addNode("other", map[string]string{"rack": "s"}, "v1")
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {pool: canary}}}]\n"+
		"domains: [{key: rack, maxUnavailable: 1}]"), dsWith("v1", 1))
	w.unreadable["v1"], w.stuck = true, "lost" // nobody can make its pod
	w.nodes["lost"].daemon = standing.Daemon{}
	w.tell("lost")
	w.update("v2")
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "no node of step canary can take the change")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{
		Approved: &v1alpha1.StepApproval{Revision: "v2", Step: v1alpha1.AllSteps}})
	w.stuck = ""
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "3 of 3")
}

// A daemon that is lost, and of whose revision no pod can be made, uses up no limit: nothing of the rollout's doing
// ends it. Who was taken by the rollout uses it up until it is available again, and the status says so.
func TestALostDaemonOfALostRevisionUsesUpNoLimit(t *testing.T) {
	for _, ours := range []bool{false, true} {
		w := newWorld()
		w.addNode("first", map[string]string{"pool": "canary"}, "v1")
		w.addNode("lost", nil, "v1")
		w.addNode("other", nil, "v1")
		w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {pool: canary}}}]"), dsWith("v1", 1))
		w.unreadable["v1"] = true
		w.tellRules()
		w.nodes["lost"].daemon = standing.Daemon{}
		w.course.nodes["lost"].change.taken = ours
		w.tell("lost")
		w.update("v2")
		if verdict, why := w.course.Verdict("lost"); verdict != standing.NodeFault || !strings.Contains(why, "v1") {
			t.Errorf("ours %v: lost is %s: %s", ours, verdict, why)
		}
		w.pass(time.Hour)
		if ours {
			w.expect(t, v1alpha1.PhaseProgressing, "the limit is used up, and is not freed by 1 node: lost (it has no daemon, and none can be made: ")
			continue
		}
		w.expect(t, v1alpha1.PhaseComplete, "3 of 3")
	}
}

// A revision that has failed may come to be called as the stable one is: that one has not failed.
func TestARevisionThatIsCalledAsTheStableOneHasNotFailed(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 3, "v1")
	w.start(policy(t, "{}"), daemonSet("v1"))
	w.update("v2")
	w.pass(5 * time.Second)
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	w.pass(5 * time.Second)
	w.expect(t, v1alpha1.PhaseRolledBack, "revision v2")
	w.ds.Renamed = "v2"
	w.update("v1")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "3 of 3 nodes have revision v1")
	for _, f := range w.course.Status().FailedRevisions {
		if f.Revision == "v1" {
			t.Errorf("v1 counts as failed: %+v", f)
		}
	}
}
