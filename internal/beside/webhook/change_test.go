package webhook

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestAChangeGoesByThePolicyThatItsRolloutNames, as long as that is there and selects the DaemonSet. Others are looked
// for only then. Once the rollout names another one that counts.
func TestAChangeGoesByThePolicyThatItsRolloutNames(t *testing.T) {
	const other = policiesPath + "/other"
	for name, c := range map[string]struct {
		change func(objects api, named *v1alpha1.RolloutPolicy)
		stable bool
	}{
		"it is there": {func(objects api, _ *v1alpha1.RolloutPolicy) { delete(objects, policiesPath) }, false},
		"it was made again, and there is no other": {func(objects api, p *v1alpha1.RolloutPolicy) {
			p.UID = "again"
			delete(objects, policiesPath)
		}, true},
		"it was made again, and is in the list": {func(objects api, p *v1alpha1.RolloutPolicy) {
			p.UID = "again"
			objects[policiesPath] = &v1alpha1.RolloutPolicyList{Items: []v1alpha1.RolloutPolicy{*p}}
		}, true},
		"it selects others": {func(objects api, p *v1alpha1.RolloutPolicy) {
			p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "other"}}
			objects[policiesPath] = &v1alpha1.RolloutPolicyList{Items: []v1alpha1.RolloutPolicy{*p}}
		}, true},
		"it cannot be read, and all can": {func(objects api, p *v1alpha1.RolloutPolicy) {
			objects[policiesPath+"/"+p.Name] = "no object"
		}, false},
		"the rollout names another one": {func(objects api, p *v1alpha1.RolloutPolicy) {
			next := p.DeepCopy()
			next.Name, next.UID, next.Spec.Waves[0].Name = "other", "other", "first"
			objects[other] = next
			delete(objects, policiesPath)
			status := &objects[rolloutPath].(*v1alpha1.DaemonSetRollout).Status
			status.Policy = &v1alpha1.FollowedPolicy{Name: "other", UID: "other"}
			status.Step, status.Cutoffs.Steps[0].Step = "first", "first"
		}, false},
	} {
		objects := changing(t)
		p := objects[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0].DeepCopy()
		objects[policiesPath+"/"+p.Name] = p
		objects[rolloutPath].(*v1alpha1.DaemonSetRollout).Status.Cutoffs = cutoffs(t, objects, "node-1")
		s := newServer(t, objects, true)
		for range 2 { // the second time the policy's name is known, and it is read with the rollout
			if got := made(t, s, objects); !got.Allowed || strings.Contains(string(got.Patch), "agent:0") {
				t.Fatalf("the canary's pod is answered with %+v (%s)", got, got.Patch)
			}
		}
		c.change(objects, p)
		for range 2 {
			got := made(t, s, objects)
			if is := strings.Contains(string(got.Patch), "agent:0"); !got.Allowed || is != c.stable {
				t.Errorf("%s: the pod is stable: %v, want %v (%+v)", name, is, c.stable, got)
			}
		}
	}
}

// TestANodeIsReadOnlyWhereItCounts: where the steps that have begun take all nodes it does not.
func TestANodeIsReadOnlyWhereItCounts(t *testing.T) {
	for name, c := range map[string]struct {
		step    string
		allowed bool
	}{"the last step": {"rest", true}, "one of some": {"racks", false}} {
		objects := changing(t)
		delete(objects, "/api/v1/nodes/node-1")
		policy := &objects[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0]
		policy.Spec.Waves = []v1alpha1.Wave{{Name: "racks", Percent: ptr.To[int32](20), SpreadBy: "rack"}}
		status := &objects[rolloutPath].(*v1alpha1.DaemonSetRollout).Status
		status.Step, status.Cutoffs = c.step, &v1alpha1.Cutoffs{PolicyGeneration: policy.Generation}
		got := made(t, newServer(t, objects, true), objects)
		if got.Allowed != c.allowed || got.Patch != nil {
			t.Errorf("%s has begun, and nobody can read the node: the answer is %+v", name, got)
		}
	}
}

// TestAnAnswerIsNoOlderThanItsQuestion: who is asked about while the rollout is read for another one is answered by
// what it says afterwards. The leader may have written meanwhile that a step has begun, and deleted a pod.
func TestAnAnswerIsNoOlderThanItsQuestion(t *testing.T) {
	objects := changing(t)
	objects[rolloutPath].(*v1alpha1.DaemonSetRollout).Status.Cutoffs = &v1alpha1.Cutoffs{PolicyGeneration: 3}
	after := objects[rolloutPath].(*v1alpha1.DaemonSetRollout).DeepCopy()
	after.Status.Cutoffs = cutoffs(t, objects, "node-1")
	reads, first, goOn := 0, make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	s := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != rolloutPath {
			objects.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		reads++
		n := reads
		mu.Unlock()
		if n > 1 {
			api{rolloutPath: after}.ServeHTTP(w, r)
			return
		}
		close(first)
		<-goOn // what was read is on its way
		objects.ServeHTTP(w, r)
	}), true)
	var all sync.WaitGroup
	ask := func(what string, stable bool) {
		all.Go(func() {
			got := made(t, s, objects)
			if is := strings.Contains(string(got.Patch), "agent:0"); !got.Allowed || is != stable {
				t.Errorf("the pod that was asked about %s the rollout was read is stable: %v (%+v)", what, is, got)
			}
		})
	}
	ask("before", true)
	<-first
	ask("while", false)
	ask("while", false)
	close(goOn)
	all.Wait()
}

// TestATryShowsWhetherPodsCanBeAnsweredFor: a DaemonSet that is taken over is stored as it is to be, whatever policies
// there are. Before pods are deleted such a write is tried, and it is refused where their rollout cannot be read.
func TestATryShowsWhetherPodsCanBeAnsweredFor(t *testing.T) {
	given := set("")
	given.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	r := &admissionv1.AdmissionRequest{UID: "x", Namespace: "default", Operation: admissionv1.Update,
		Object: raw(t, given), OldObject: raw(t, set(""))}
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: r})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		objects api
		allowed bool
	}{
		"policies cannot be read":    {api{policiesPath: "no list"}, true},
		"the rollout can be read":    {api{rolloutPath: &v1alpha1.DaemonSetRollout{}}, true},
		"the rollout cannot be read": {api{rolloutPath: "no object"}, false},
	} {
		_, got := post(t, newServer(t, c.objects, false), "daemonset", string(body))
		if got.Allowed != c.allowed || c.allowed && !strings.Contains(string(got.Patch), `"OnDelete"`) {
			t.Errorf("%s: the answer is %+v (%s)", name, got, got.Patch)
		}
	}
}

// TestARolloutCountsOnlyWhereAPolicyHolds: pods of a DaemonSet that was given back are made, also where its rollout,
// which named a policy once, cannot be read any more.
func TestARolloutCountsOnlyWhereAPolicyHolds(t *testing.T) {
	objects := changing(t)
	s := newServer(t, objects, true)
	got := made(t, s, objects)
	if !got.Allowed {
		t.Fatalf("the pod of a change is answered with %+v", got)
	}
	given := objects[setPath].(*appsv1.DaemonSet).DeepCopy()
	given.Annotations = nil
	objects[setPath], objects[rolloutPath] = given, "no object"
	got = made(t, s, objects)
	if !got.Allowed || got.Patch != nil {
		t.Errorf("the pod of a DaemonSet that was given back is answered with %+v", got)
	}
}

// TestOneReadThatFailsIsNotTheAnswerForMany pods that share it: all would be made of the newest template, or refused.
// Nor is one to which nothing is answered.
func TestOneReadThatFailsIsNotTheAnswerForMany(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{
		"fails": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		objects := changing(t)
		objects[rolloutPath].(*v1alpha1.DaemonSetRollout).Status.Cutoffs = &v1alpha1.Cutoffs{PolicyGeneration: 3}
		var failed atomic.Bool
		s := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == rolloutPath && failed.CompareAndSwap(false, true) {
				fail(w, r)
				return
			}
			objects.ServeHTTP(w, r)
		}), true)
		got := made(t, s, objects)
		if !got.Allowed || !strings.Contains(string(got.Patch), "agent:0") {
			t.Errorf("the first read %s, and the next one would not: the answer is %+v", name, got)
		}
	}
}
