package daemonset

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/objects/pod"
)

// choosyAPI refuses some statuses of rollouts.
type choosyAPI struct {
	policyAPI
	refuses func(*v1alpha1.DaemonSetRolloutStatus) bool
}

func (a choosyAPI) UpdateRolloutStatus(
	ctx context.Context, r *v1alpha1.DaemonSetRollout,
) (*v1alpha1.DaemonSetRollout, error) {
	if a.refuses(&r.Status) {
		return nil, apierrors.NewTooManyRequestsError("not this one")
	}
	return a.policyAPI.UpdateRolloutStatus(ctx, r)
}

// while runs a controller that writes rollouts so, for as long as something is done.
func (a choosyAPI) while(t *testing.T, do func()) {
	t.Helper()
	c, err := New(Config{Informers: a, Writer: a, Recorder: record.NewFakeRecorder(100000), Rollouts: a})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	do()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// failedOnce has six nodes whose second image has failed on the canary.
func failedOnce(t *testing.T, a policyAPI) (stop func()) {
	t.Helper()
	fails(a.fakeAPI, func(c *corev1.Container) bool { return c.Image == "demo:v2" })
	for i := range 6 {
		a.add(sizedNode(fmt.Sprint("n", i), "s", 4))
	}
	a.add(smallCanary(v1alpha1.ApprovalAutomatic))
	stop = startWithPolicies(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a.fakeAPI, "logs", 6)
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	setImage(t, a.fakeAPI, "logs", "demo:v2")
	wantPhase(t, a, v1alpha1.PhaseRolledBack, "")
	eventually(t, func() string {
		if got := images(a.fakeAPI); got["demo:v1"] != 6 {
			return fmt.Sprint("pods have ", got)
		}
		return ""
	})
	return stop
}

// given are the nodes that are given an image from now on, whose pods fail.
func given(a policyAPI, image string) (nodes func() []string) {
	var out []string
	fails(a.fakeAPI, func(c *corev1.Container) bool { return c.Image == image })
	a.mu.Lock()
	defer a.mu.Unlock()
	falls := a.started
	a.started = func(p *corev1.Pod) {
		falls(p)
		if p.Spec.Containers[0].Image == image {
			out = append(out, pod.TargetNode(p))
		}
	}
	return func() []string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return out
	}
}

// A leader that lost its lease unaware, or somebody with the right to, writes a status that is not so. It does not
// stay: the next controller would go by it, and give out again what has failed.
func TestAStatusOfSomebodyElseDoesNotStay(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	stop := failedOnce(t, a)
	defer func() { stop() }()
	edit(t, a.fakeAPI, "default", "logs", func(r *v1alpha1.DaemonSetRollout) {
		r.Status.Phase, r.Status.FailedRevisions, r.Status.Failures = v1alpha1.PhaseProgressing, nil, nil
	})
	if r := wantPhase(t, a, v1alpha1.PhaseRolledBack, ""); len(r.Status.FailedRevisions) != 1 {
		t.Errorf("it is said that %v failed", r.Status.FailedRevisions)
	}
	stop()
	nodes := given(a, "demo:v2")
	stop = startWithPolicies(t, a)
	quiet(t, a.fakeAPI)
	if got := nodes(); len(got) > 0 {
		t.Errorf("what has failed is given out again, to %v", got)
	}
}

// What has failed is stored before a node goes back: else who dies before that leaves nothing by which the next one
// knows, and gives it out again.
func TestAFailureIsStoredBeforeNodesGoBack(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	stop := failedOnce(t, a)
	stop()
	nodes := given(a, "demo:v3")
	another := func(s *v1alpha1.DaemonSetRolloutStatus) bool { return len(s.FailedRevisions) > 1 }
	choosyAPI{a, another}.while(t, func() {
		setImage(t, a.fakeAPI, "logs", "demo:v3")
		eventually(t, func() string {
			if len(nodes()) == 0 {
				return "nobody has it"
			}
			return ""
		})
		time.Sleep(200 * time.Millisecond)
	})
	defer startWithPolicies(t, a)()
	wantPhase(t, a, v1alpha1.PhaseRolledBack, "")
	eventually(t, func() string {
		if got := images(a.fakeAPI); got["demo:v1"] != 6 {
			return fmt.Sprint("pods have ", got)
		}
		return ""
	})
	if got := nodes(); len(got) != 1 {
		t.Errorf("it was given to %v, want to one node once", got)
	}
}

// A rollout is deleted in the middle of a change while no controller runs. The next one makes it again, paused, and
// dies before it has written where it stands: the one after that goes on from the same revision.
func TestARolloutThatWasMadeAgainWithoutAStatus(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i := range 6 {
		n := sizedNode(fmt.Sprint("n", i), "s", 4)
		if i < 4 {
			n.Labels["name"] = "n0" // most nodes are canaries
		}
		a.add(n)
	}
	a.add(smallCanary(v1alpha1.ApprovalManual))
	stop := startWithPolicies(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a.fakeAPI, "logs", 6)
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	setImage(t, a.fakeAPI, "logs", "demo:v2")
	waiting := wantPhase(t, a, v1alpha1.PhaseWaitingForApproval, "")
	eventually(t, func() string {
		ds, err := a.GetDaemonSet(t.Context(), "default", "logs")
		for i := range ds.Status.Conditions {
			if ds.Status.Conditions[i].Reason == fact.FollowsPolicy+string(v1alpha1.PhaseWaitingForApproval) {
				return ""
			}
		}
		return fmt.Sprintf("the conditions are %v, %v", ds.Status.Conditions, err)
	})
	stop()
	if err := a.DeleteRollout(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	all := func(*v1alpha1.DaemonSetRolloutStatus) bool { return true }
	choosyAPI{a, all}.while(t, func() {
		eventually(t, func() string {
			r, err := a.GetRollout(t.Context(), "default", "logs")
			if err != nil || !r.Spec.Paused {
				return fmt.Sprint("there is no rollout that is paused: ", err)
			}
			return ""
		})
	})
	defer startWithPolicies(t, a)()
	was, is := waiting.Status, wantPhase(t, a, v1alpha1.PhasePaused, "was deleted while it was").Status
	if is.StableRevision != was.StableRevision || is.TargetRevision != was.TargetRevision {
		t.Errorf("it goes from %s to %s, and went from %s to %s", is.StableRevision, is.TargetRevision,
			was.StableRevision, was.TargetRevision)
	}
	edit(t, a.fakeAPI, "default", "logs", func(r *v1alpha1.DaemonSetRollout) {
		r.Spec.Paused, r.Generation = false, 2
	})
	wantPhase(t, a, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	quiet(t, a.fakeAPI)
	if got := images(a.fakeAPI); got["demo:v1"] != 2 {
		t.Errorf("nobody approved the canary, and pods have %v", got)
	}
}
