package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/deployment/plan"
)

var (
	noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	key  = ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}}
)

// journal is a writer and a recorder that remember. What is written does not reach
// the cache by itself.
type journal struct {
	writes []string
	events []string
	status *appsv1.Deployment
	made   *appsv1.ReplicaSet
	taken  *appsv1.ReplicaSet // what has the name of a set to be created
	live   *appsv1.Deployment
	fail   map[string]error
	count  int
}

func (j *journal) note(verb, name string) error {
	j.writes = append(j.writes, verb+" "+name)
	return j.fail[verb]
}

// GetDeployment implements writer.
func (j *journal) GetDeployment(context.Context, string, string) (*appsv1.Deployment, error) {
	return j.live, nil
}

// UpdateStatus implements writer.
func (j *journal) UpdateStatus(_ context.Context, d *appsv1.Deployment) error {
	j.status = d
	return j.note("status", d.Name)
}

// GetSet implements writer.
func (j *journal) GetSet(context.Context, string, string) (*appsv1.ReplicaSet, error) {
	if j.taken == nil {
		return nil, apierrors.NewNotFound(appsv1.Resource("replicasets"), "x")
	}
	return j.taken, nil
}

// CreateSet implements writer.
func (j *journal) CreateSet(_ context.Context, s *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	err := j.note("create", s.Name)
	s = s.DeepCopy()
	s.UID, s.ResourceVersion, s.Generation, j.made = "made", "100", 1, s
	return s, err
}

// UpdateSet implements writer.
func (j *journal) UpdateSet(_ context.Context, s *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	s = s.DeepCopy()
	j.count++
	s.ResourceVersion = fmt.Sprint(1000 + j.count)
	s.Generation++
	return s, j.note(fmt.Sprint("update to ", *s.Spec.Replicas), s.Name)
}

// PatchSet implements writer.
func (j *journal) PatchSet(_ context.Context, _, name string, patch []byte) (*appsv1.ReplicaSet, error) {
	s := aSet(name, "v1", 0)
	s.Name, s.UID = name, types.UID(name)
	if strings.Contains(string(patch), "$patch") {
		return s, j.note("release", name)
	}
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j.live, plan.Kind)}
	return s, j.note("adopt", name)
}

// DeleteSet implements writer.
func (j *journal) DeleteSet(_ context.Context, s *appsv1.ReplicaSet) error {
	return j.note("delete", s.Name)
}

// Eventf implements Recorder.
func (j *journal) Eventf(_ runtime.Object, kind, reason, format string, args ...any) {
	j.events = append(j.events, kind+" "+reason+" "+fmt.Sprintf(format, args...))
}

func template(version string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: version}}}}
}

func aDeployment(version string, edits ...func(*appsv1.DeploymentSpec)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "deployment", Generation: 1}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(version),
		Strategy:                appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{}},
		ProgressDeadlineSeconds: ptr.To[int32](60), RevisionHistoryLimit: ptr.To[int32](0),
	}}
	for _, edit := range edits {
		edit(&d.Spec)
	}
	return d
}

// aSet is a set of the Deployment with all its pods available.
func aSet(name, version string, replicas int32) *appsv1.ReplicaSet {
	s := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1", Labels: map[string]string{"app": "web"},
		Annotations:     map[string]string{plan.DesiredReplicasAnnotation: "2", plan.MaxReplicasAnnotation: "2", plan.RevisionAnnotation: "1"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(aDeployment(""), plan.Kind)}}}
	s.Spec = appsv1.ReplicaSetSpec{Replicas: &replicas, Template: template(version)}
	s.Status = appsv1.ReplicaSetStatus{Replicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
	return s
}

func setup(objects ...client.Object) (*reconciler, *journal) {
	cache := crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithIndex(&appsv1.ReplicaSet{}, ownerIndex, byOwner).Build()
	j := &journal{live: aDeployment("v1"), fail: map[string]error{}}
	return newReconciler(cache, j, Config{Events: j, Clock: testingclock.NewFakePassiveClock(noon)}), j
}

func (j *journal) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	got := slices.Clone(j.writes)
	for i := range got {
		if verb, name, _ := strings.Cut(got[i], " web-"); j.made != nil && "web-"+name == j.made.Name {
			got[i] = verb + " new"
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: wrote %q, want %q", what, got, want)
	}
}

func TestStaleCacheDoesNothingTwice(t *testing.T) {
	r, j := setup(aDeployment("v2"), aSet("old", "v1", 2))
	for range 3 {
		if _, err := r.Reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	// The old set is scaled down and the new one up by one each, once: after that
	// nothing has reported its pods.
	j.expect(t, "three times the same cache", "create new", "update to 1 old", "status web", "update to 1 new", "status web", "status web")
	if a := j.status.Annotations[plan.RevisionAnnotation]; a != "2" {
		t.Errorf("the revision is %q, want 2", a)
	}
	if want := []string{"Normal ScalingReplicaSet Scaled down replica set old from 2 to 1", "Normal ScalingReplicaSet Scaled up replica set " + j.made.Name + " from 0 to 1"}; !slices.Equal(j.events, want) {
		t.Errorf("the events are %q, want %q", j.events, want)
	}
}

func TestAdoptAndRelease(t *testing.T) {
	free, stray, foreign := aSet("free", "v1", 2), aSet("stray", "v3", 0), aSet("foreign", "v3", 1)
	free.OwnerReferences, stray.Labels, foreign.OwnerReferences[0].UID = nil, nil, "another"
	r, j := setup(aDeployment("v1"), free, stray, foreign)
	if _, err := r.Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	slices.Sort(j.writes)
	if !slices.Equal(j.writes[:1], []string{"adopt free"}) || !slices.Contains(j.writes, "release stray") || j.made != nil {
		t.Errorf("wrote %q, want free adopted and stray released, and no new set", j.writes)
	}
}

func TestTakenNames(t *testing.T) {
	exists := apierrors.NewAlreadyExists(appsv1.Resource("replicasets"), "x")
	own := aSet("x", "v2", 1)
	foreign := aSet("x", "v2", 1)
	foreign.OwnerReferences = nil
	for _, c := range []struct {
		name       string
		taken      *appsv1.ReplicaSet
		err        string
		writes     []string
		collisions int32
	}{
		{"by our own set, which the cache does not show", own, "it is there already", []string{"create new"}, 0},
		{"by somebody's", foreign, "", []string{"create new", "status web"}, 1},
		{"by our own with another template", aSet("x", "v3", 1), "", []string{"create new", "status web"}, 1},
		{"and free again", nil, "its name was taken and is free again", []string{"create new"}, 0},
	} {
		r, j := setup(aDeployment("v2"), aSet("old", "v1", 2))
		j.taken, j.fail["create"] = c.taken, exists
		_, err := r.Reconcile(t.Context(), key)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
		j.expect(t, c.name, c.writes...)
		if j.status != nil && ptr.Deref(j.status.Status.CollisionCount, 0) != c.collisions {
			t.Errorf("%s: %d collisions, want %d", c.name, ptr.Deref(j.status.Status.CollisionCount, 0), c.collisions)
		}
	}
}

func TestRefusedWrites(t *testing.T) {
	conflict, busy := apierrors.NewConflict(appsv1.Resource("replicasets"), "x", errors.New("changed")), errors.New("busy")
	ending := apierrors.NewForbidden(corev1.Resource("pods"), "a", nil)
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, c := range []struct {
		name, verb string
		fail       error
		err        string
		writes     []string
	}{
		{"the new set is refused", "create", busy, "busy", []string{"create new", "status web"}},
		{"the namespace ends", "create", ending, "", []string{"create new"}},
		{"somebody changed a set", "update to 1", conflict, "", []string{"create new", "update to 1 old"}},
		{"a set cannot be changed", "update to 1", busy, "update ReplicaSet ns/old: busy", []string{"create new", "update to 1 old"}},
		{"somebody changed the Deployment", "status", conflict, "", []string{"create new", "update to 1 old", "status web"}},
		{"the status is refused", "status", busy, "update the status of Deployment ns/web: busy", []string{"create new", "update to 1 old", "status web"}},
	} {
		r, j := setup(aDeployment("v2"), aSet("old", "v1", 2))
		j.fail[c.verb] = c.fail
		_, err := r.Reconcile(t.Context(), key)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
		j.expect(t, c.name, c.writes...)
		if c.verb == "create" && errors.Is(c.fail, busy) {
			condition := j.status.Status.Conditions[0]
			if condition.Reason != "ReplicaSetCreateError" || condition.Status != corev1.ConditionFalse || !strings.HasPrefix(j.events[0], "Warning ReplicaSetCreateError Failed to create new replica set") {
				t.Errorf("%s: the condition is %+v, the events are %q", c.name, condition, j.events)
			}
		}
	}
}

func TestEarlierTemplatesGoOnce(t *testing.T) {
	for _, fail := range []error{nil, apierrors.NewConflict(appsv1.Resource("replicasets"), "x", errors.New("changed"))} {
		d := aDeployment("v2")
		now := aSet("now", "v2", 2)
		now.Annotations[plan.RevisionAnnotation] = "2"
		r, j := setup(d, now, aSet("old", "v1", 0))
		j.fail["delete"] = fail
		for range 2 {
			if _, err := r.Reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"delete old", "status web", "status web"}
		if fail != nil {
			want = []string{"delete old", "delete old"}
		}
		j.expect(t, fmt.Sprint("deletion answered with ", fail), want...)
	}
}

func TestAskedAgainAtTheDeadline(t *testing.T) {
	r, _ := setup(aDeployment("v1"))
	if result, err := r.Reconcile(t.Context(), key); err != nil || result.RequeueAfter != 61*time.Second {
		t.Errorf("%+v, %v; want to be asked again after the deadline", result, err)
	}
	r, _ = setup()
	if _, err := r.Reconcile(t.Context(), key); err != nil {
		t.Errorf("a Deployment that is gone: %v", err)
	}
}

// collected is a queue that only remembers what was added to it.
type collected struct {
	queue
	names []string
}

// Add implements workqueue.TypedInterface.
func (c *collected) Add(r reconcile.Request) { c.names = append(c.names, r.Name) }

func TestOnlyDeploymentsConcernedAreEnqueued(t *testing.T) {
	other := aDeployment("v1")
	other.Name, other.UID, other.Spec.Selector = "other", "other", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	set := aSet("set", "v1", 1)
	r, _ := setup(aDeployment("v1"), other, set)
	free := aSet("set", "v1", 1)
	free.OwnerReferences = nil
	away := aSet("set", "v1", 1)
	away.OwnerReferences, away.Labels = nil, map[string]string{"app": "other"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}}}
	over := pod.DeepCopy()
	over.Status.Phase = corev1.PodSucceeded
	for _, c := range []struct {
		name string
		send func(q *collected)
		want string
	}{
		{"a set of it", func(q *collected) {
			r.setHandler().Create(t.Context(), event.CreateEvent{Object: set}, q)
		}, "web"},
		{"a set that nobody has", func(q *collected) {
			r.setHandler().Create(t.Context(), event.CreateEvent{Object: free}, q)
		}, "web"},
		{"a set changes hands", func(q *collected) {
			r.setHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: set, ObjectNew: away}, q)
		}, "web other"},
		{"a set is gone", func(q *collected) {
			r.setHandler().Delete(t.Context(), event.DeleteEvent{Object: set}, q)
		}, "web"},
		{"a pod is gone", func(q *collected) { r.podHandler().Delete(t.Context(), event.DeleteEvent{Object: pod}, q) }, "web"},
		{"a pod is over", func(q *collected) {
			r.podHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: pod, ObjectNew: over}, q)
		}, "web"},
		{"a pod lives on", func(q *collected) {
			r.podHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: pod, ObjectNew: pod}, q)
		}, ""},
		{"the Deployment itself", func(q *collected) {
			r.wrote.Owners().Update(t.Context(), event.UpdateEvent{ObjectOld: other, ObjectNew: other}, q)
		}, "other"},
	} {
		q := &collected{}
		c.send(q)
		if got := strings.Join(q.names, " "); got != c.want {
			t.Errorf("%s: enqueued %q, want %q", c.name, got, c.want)
		}
	}
}
