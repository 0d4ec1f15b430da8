package daemonset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/metrics"
	"github.com/everynode/everynode/internal/controller/daemonset/mold"
)

// scriptedWriter answers what a test wants.
type scriptedWriter struct {
	executor.Writer
	create, remove error
	// conflicts is how many status updates meet a newer version.
	conflicts int
	live      *appsv1.DaemonSet
	written   []string // resource versions of the statuses that were sent
}

func (w *scriptedWriter) CreatePod(_ context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return p, w.create
}

func (w *scriptedWriter) DeletePod(context.Context, string, string, types.UID) error { return w.remove }

func (w *scriptedWriter) GetDaemonSet(context.Context, string, string) (*appsv1.DaemonSet, error) {
	return w.live, nil
}

func (w *scriptedWriter) UpdateDaemonSetStatus(_ context.Context, ds *appsv1.DaemonSet) (*appsv1.DaemonSet, error) {
	w.written = append(w.written, ds.ResourceVersion)
	if len(w.written) <= w.conflicts {
		return nil, apierrors.NewConflict(resource[kindDaemonSet], ds.Name, fmt.Errorf("the object has been modified"))
	}
	return ds, nil
}

// A pod that is pointed at content says when that was asked for, and remembers how often each of its containers had
// restarted.
func TestPointingRemembersRestarts(t *testing.T) {
	a := newFakeAPI(t)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "a", RestartCount: 6}, {Name: "b"}, {Name: "c", RestartCount: 1}}
	a.add(p)
	e, _ := newExecutor(t, a)
	const revision = "t.abcdefghijklmnopqrstuvwx"
	asked := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	answer := e.PointPod(t.Context(), testDaemonSet("logs"), &action.PointPod{
		Target: action.Target{Namespace: "default"}, Node: "n", PodName: "p", PodUID: "u", Revision: revision, At: asked}, nil)
	now, err := a.GetPod(t.Context(), "default", "p")
	if err != nil || answer.Outcome != action.OK {
		t.Fatal(answer, err)
	}
	to, err := content.PointingOf(now.Annotations)
	by := map[string]int32{"a": 6, "c": 1}
	if err != nil || to == nil || !to.At.Equal(asked) || to.Restarts != 6 || !maps.Equal(to.RestartsBy, by) {
		t.Errorf("it remembers %+v, %v", to, err)
	}
}

func newExecutor(t *testing.T, w executor.Writer) (*executor.Executor, *record.FakeRecorder) {
	t.Helper()
	m, err := metrics.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	recorder := record.NewFakeRecorder(10)
	return &executor.Executor{Writer: w, Recorder: recorder, Clock: clock.RealClock{}, Metrics: m}, recorder
}

func recorded(r *record.FakeRecorder) (out []string) {
	for len(r.Events) > 0 {
		out = append(out, <-r.Events)
	}
	return out
}

var logsTarget = action.Target{UID: "uid", Namespace: "default", Name: "logs"}

func TestEventsOfCreations(t *testing.T) {
	terminating := apierrors.NewForbidden(resource[kindPod], "logs-1",
		fmt.Errorf("unable to create new content in namespace default because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	quota := apierrors.NewForbidden(resource[kindPod], "logs-1", fmt.Errorf("exceeded quota"))
	for name, c := range map[string]struct {
		err     error
		want    []string
		outcome action.Outcome
	}{
		"done":                     {nil, []string{"Normal SuccessfulCreate Created pod: logs-1"}, action.OK},
		"refused":                  {quota, []string{`Warning FailedCreate Error creating: pods "logs-1" is forbidden: exceeded quota`}, action.Failed},
		"no answer":                {fmt.Errorf("connection lost"), []string{"Warning FailedCreate Error creating: connection lost"}, action.Unknown},
		"the namespace terminates": {terminating, nil, action.Failed},
	} {
		e, events := newExecutor(t, &scriptedWriter{create: c.err})
		ds := testDaemonSet("logs")
		a := &action.CreatePod{Target: logsTarget, Node: "n1", PodName: "logs-1"}
		outcome := e.CreatePod(t.Context(), ds, mold.New(ds), a).Outcome
		if got := recorded(events); !slices.Equal(got, c.want) || outcome != c.outcome {
			t.Errorf("%s: events %q and outcome %v, want %q and %v", name, got, outcome, c.want, c.outcome)
		}
	}
}

func TestEventsOfDeletions(t *testing.T) {
	const deleted = "Normal SuccessfulDelete Deleted pod: logs-1"
	gone := apierrors.NewNotFound(resource[kindPod], "logs-1")
	for name, c := range map[string]struct {
		reason  action.Reason
		err     error
		want    []string
		outcome action.Outcome
	}{
		"any reason": {action.ReasonOutdated, nil, []string{deleted}, action.OK},
		"failed": {action.ReasonFailed, nil, []string{
			"Warning FailedDaemonPod Found failed daemon pod default/logs-1 on node n1, will try to kill it", deleted}, action.OK},
		"succeeded": {action.ReasonSucceeded, nil, []string{
			"Normal SucceededDaemonPod Found succeeded daemon pod default/logs-1 on node n1, will try to delete it", deleted}, action.OK},
		"gone already": {action.ReasonOutdated, gone, nil, action.Gone},
		"refused": {action.ReasonOutdated, apierrors.NewForbidden(resource[kindPod], "logs-1", fmt.Errorf("no")),
			[]string{`Warning FailedDelete Error deleting: pods "logs-1" is forbidden: no`}, action.Failed},
	} {
		e, events := newExecutor(t, &scriptedWriter{remove: c.err})
		a := &action.DeletePod{Target: logsTarget, Node: "n1", PodName: "logs-1", Reason: c.reason}
		outcome := e.DeletePod(t.Context(), testDaemonSet("logs"), a)
		if got := recorded(events); !slices.Equal(got, c.want) || outcome != c.outcome {
			t.Errorf("%s: events %q and outcome %v, want %q and %v", name, got, outcome, c.want, c.outcome)
		}
	}
}

// A conflict is met by one retry over the newest object.
func TestStatusAfterAConflict(t *testing.T) {
	for _, c := range []struct {
		conflicts int
		written   string
		outcome   action.Outcome
	}{
		{0, "1", action.OK},
		{1, "1 2", action.OK},
		{2, "1 2", action.Failed},
	} {
		seen, live := testDaemonSet("logs"), testDaemonSet("logs")
		seen.UID, seen.ResourceVersion = "uid", "1"
		live.UID, live.ResourceVersion = "uid", "2"
		live.Status.Conditions = []appsv1.DaemonSetCondition{{Type: "Foreign"}}
		w := &scriptedWriter{conflicts: c.conflicts, live: live}
		e, _ := newExecutor(t, w)
		status := &action.UpdateStatus{Target: logsTarget, Status: fact.Status{Ready: 3}}
		got, outcome := e.UpdateStatus(t.Context(), seen, status)
		if written := strings.Join(w.written, " "); written != c.written || outcome != c.outcome {
			t.Errorf("%d conflicts: wrote over versions %s with outcome %v, want %s and %v", c.conflicts, written, outcome,
				c.written, c.outcome)
		}
		if c.conflicts == 1 && (got.Status.NumberReady != 3 || got.Status.Conditions[0].Type != "Foreign") {
			t.Errorf("the status is %+v, want ours over the newest object's", got.Status)
		}
	}
}

// What the API, or an operator, is to mend is not blamed on a revision.
func TestRefusalsThatBlameTheTemplate(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := func(why string) error { return apierrors.NewForbidden(pods, "logs-x", errors.New(why)) }
	for _, test := range []struct {
		err    error
		blames bool
	}{
		{forbidden("exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5"), false},
		{forbidden("status unknown for quota: small, resources: pods"), false},
		{forbidden(`User "system:serviceaccount:kube-system:daemon-set-controller" cannot create resource "pods" in API group "" in the namespace "default"`), false},
		{forbidden(`violates PodSecurity "restricted:latest": hostNetwork`), true},
		{forbidden("failed quota: small: must specify limits.cpu for: d"), true},
		{apierrors.NewBadRequest("admission webhook denied the request"), true},
		{apierrors.NewInternalError(errors.New("a webhook is away")), false},
	} {
		if got := executor.BlamesTemplate(test.err); got != test.blames {
			t.Errorf("%v: %v", test.err, got)
		}
	}
}
