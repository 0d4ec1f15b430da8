package daemonset

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// quicker is an API in which somebody else always was.
type quicker struct{ executor.RolloutWriter }

func (quicker) GetRollout(context.Context, string, string) (*v1alpha1.DaemonSetRollout, error) {
	return &v1alpha1.DaemonSetRollout{}, nil
}

func (quicker) UpdateRolloutStatus(_ context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error) {
	return nil, apierrors.NewConflict(resource[kindRollout], r.Name, errors.New("the object has been modified"))
}

// The log says why a rollout's status is not taken: the DaemonSet's condition sends people there.
func TestLogSaysWhyAStatusIsNotTaken(t *testing.T) {
	e, _ := newExecutor(t, nil)
	e.Rollouts = quicker{}
	var said strings.Builder
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, line string) { said.WriteString(line) }, funcr.Options{}))
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs"}}
	if _, out := e.UpdateRollout(ctx, ds, &v1alpha1.DaemonSetRollout{}, &action.UpdateRollout{}); out != action.Failed {
		t.Errorf("the outcome is %s", out)
	}
	if !strings.Contains(said.String(), "the object has been modified") {
		t.Errorf("it says %s", said.String())
	}
}

// deletedBefore is an API in which somebody deletes the rollout before it is written, and perhaps wrote it before that.
type deletedBefore struct {
	executor.RolloutWriter
	first   error
	created *v1alpha1.DaemonSetRollout
}

func (*deletedBefore) GetRollout(_ context.Context, _, name string) (*v1alpha1.DaemonSetRollout, error) {
	return nil, apierrors.NewNotFound(resource[kindRollout], name)
}

func (d *deletedBefore) CreateRollout(
	_ context.Context, r *v1alpha1.DaemonSetRollout,
) (*v1alpha1.DaemonSetRollout, error) {
	d.created = r
	return r, nil
}

func (d *deletedBefore) UpdateRolloutStatus(
	_ context.Context, r *v1alpha1.DaemonSetRollout,
) (*v1alpha1.DaemonSetRollout, error) {
	if d.created == nil {
		return nil, d.first
	}
	return r, nil
}

func (*deletedBefore) UpdateRollout(
	_ context.Context, r *v1alpha1.DaemonSetRollout,
) (*v1alpha1.DaemonSetRollout, error) {
	return r, nil
}

// A rollout that is deleted just before its status is written is not made again by that: whether the next one is paused,
// or there is to be none since somebody approved that, is known when its end has been seen.
func TestARolloutThatIsDeletedJustBeforeItsStatusIsWritten(t *testing.T) {
	conflict := apierrors.NewConflict(resource[kindRollout], "logs", errors.New("the object has been modified"))
	for name, first := range map[string]error{
		"gone": apierrors.NewNotFound(resource[kindRollout], "logs"), "written and gone": conflict,
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newExecutor(t, nil)
			api := &deletedBefore{first: first}
			e.Rollouts = api
			ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs", UID: "1"}}
			have := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}
			if _, out := e.UpdateRollout(t.Context(), ds, have, &action.UpdateRollout{}); out != action.Gone {
				t.Errorf("the outcome is %s", out)
			}
			if api.created != nil {
				t.Errorf("it is made again: %+v", api.created)
			}
		})
	}
}

// overwritten is an API in which somebody wrote the rollout before its status is.
type overwritten struct {
	executor.RolloutWriter
	now *v1alpha1.DaemonSetRollout
}

func (w *overwritten) GetRollout(context.Context, string, string) (*v1alpha1.DaemonSetRollout, error) {
	return w.now.DeepCopy(), nil
}

func (w *overwritten) UpdateRolloutStatus(
	_ context.Context, r *v1alpha1.DaemonSetRollout,
) (*v1alpha1.DaemonSetRollout, error) {
	if r.ResourceVersion != w.now.ResourceVersion {
		return nil, apierrors.NewConflict(resource[kindRollout], r.Name, errors.New("the object has been modified"))
	}
	w.now = r
	return r, nil
}

func (w *overwritten) UpdateRollout(
	_ context.Context, r *v1alpha1.DaemonSetRollout,
) (*v1alpha1.DaemonSetRollout, error) {
	w.now = r
	return r, nil
}

// A write that took long may be of a DaemonSet that is gone, whose rollout the next one of the name has taken over: where
// the old one stood must not pass for where the new one does.
func TestALateStatusOfADaemonSetThatIsGone(t *testing.T) {
	for _, c := range []struct {
		before, now string // whose the rollout is
		out         action.Outcome
	}{
		{"old", "new", action.Failed}, {"older", "new", action.Failed},
		{"old", "old", action.OK}, {"older", "older", action.OK}, {"older", "old", action.OK},
	} {
		e, _ := newExecutor(t, nil)
		of := func(owner, version string) *v1alpha1.DaemonSetRollout {
			return &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Name: "logs", ResourceVersion: version,
				Labels: map[string]string{rollouts.OwnerLabel: owner}}}
		}
		api := &overwritten{now: of(c.now, "2")}
		e.Rollouts = api
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs", UID: "old"}}
		a := &action.UpdateRollout{Status: v1alpha1.DaemonSetRolloutStatus{StableRevision: "old"}}
		_, out := e.UpdateRollout(t.Context(), ds, of(c.before, "1"), a)
		if stands := api.now.Status.StableRevision; out != c.out || (stands == "old") != (out == action.OK) {
			t.Errorf("the rollout of %s is of %s now: %s, and it says %q is stable", c.before, c.now, out, stands)
		}
	}
}

// A rollout that goes while no watch is open, and was made while none was, is followed by one that is paused.
func TestARolloutThatGoesUnseen(t *testing.T) {
	t.Parallel()
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i := range 4 {
		a.add(policyNode(i))
	}
	a.add(testDaemonSet("logs"))
	a.add(waitsForApproval("careful"))
	stop := startWithPolicies(t, a)
	defer func() { stop() }()
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	setImage(t, a.fakeAPI, "logs", "demo:v2")
	wantPhase(t, a, v1alpha1.PhaseWaitingForApproval, "")
	a.mu.Lock()
	delete(a.objects[kindRollout], keyOf("default", "logs")) // and nobody is told
	a.mu.Unlock()
	setImage(t, a.fakeAPI, "logs", "demo:v3")
	wantPhase(t, a, v1alpha1.PhasePaused, "its DaemonSetRollout was deleted while it was")
}
