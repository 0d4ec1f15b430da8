package loops

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testenv"
)

// fleet is a control plane with a DaemonSet "logs" on each of its nodes.
type fleet struct {
	*testenv.Env
	t     *testing.T
	nodes int32
}

// startFleet starts one whose DaemonSet follows a policy, given as the YAML of its
// spec, and waits until it is complete.
func startFleet(t *testing.T, nodes int, policy string) *fleet {
	f := &fleet{testenv.Start(t, testenv.SimulatedNodes(nodes)), t, int32(nodes)}
	createDaemonSet(t, f.Env, "logs")
	daemonSetSettles(t, f.Env, f.nodes)
	f.makePolicy("careful", policy)
	f.phase(v1alpha1.PhaseComplete)
	return f
}

func (f *fleet) own() *everynode.Client {
	f.t.Helper()
	c, err := everynode.NewForConfig(f.Config)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *fleet) makePolicy(name, text string) {
	f.t.Helper()
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.own().RolloutPolicies("default").Create(f.t.Context(), p, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) rollout(ctx context.Context) (*v1alpha1.DaemonSetRollout, error) {
	return f.own().DaemonSetRollouts("default").Get(ctx, "logs", metav1.GetOptions{})
}

// phase waits until the rollout is there, and says so, and returns it.
func (f *fleet) phase(want v1alpha1.Phase, words ...string) (r *v1alpha1.DaemonSetRollout) {
	f.t.Helper()
	f.Eventually("the rollout is "+string(want), func(ctx context.Context) (err error) {
		if r, err = f.rollout(ctx); err != nil {
			return err
		}
		ds, err := f.Client.AppsV1().DaemonSets("default").Get(ctx, "logs", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := &r.Status
		missing := slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s.Message, w) })
		if s.Phase != want || missing || s.DaemonSetGeneration != ds.Generation {
			return fmt.Errorf("it is %s: %s, stable %s, target %s, counts %v", s.Phase, s.Message, s.StableRevision, s.TargetRevision, s.Counts)
		}
		return nil
	})
	return r
}

func (f *fleet) setImage(image string) {
	f.t.Helper()
	patchDaemonSet(f.t, f.Env, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image))
}

// spec changes what people write into the rollout.
func (f *fleet) spec(spec map[string]any) {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.own().DaemonSetRollouts("default").Patch(f.t.Context(), "logs", types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// images counts the nodes by the image of their pods.
func (f *fleet) images() map[string]int {
	f.t.Helper()
	pods, err := f.Client.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	out := map[string]int{}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil {
			out[p.Spec.Containers[0].Image]++
		}
	}
	return out
}

func (f *fleet) runs(want map[string]int) {
	f.t.Helper()
	f.Eventually(fmt.Sprintf("nodes run %v", want), func(context.Context) error {
		if got := f.images(); !maps.Equal(got, want) {
			return fmt.Errorf("they run %v", got)
		}
		return nil
	})
}

// events returns the messages of the DaemonSet's events with the reason.
func (f *fleet) events(reason string) (out []string) {
	f.t.Helper()
	list, err := f.Client.CoreV1().Events("default").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == reason && e.InvolvedObject.Kind == "DaemonSet" {
			out = append(out, e.Message)
		}
	}
	return out
}

func TestABadImageStopsAtTheCanaryAndGoesBack(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 20, "waves: [{name: canary, count: 2, soak: 1h}]\nfailure: {then: Rollback}")
	most := 0
	f.setImage("demo:fail")
	f.Eventually("it is rolled back", func(ctx context.Context) error {
		most = max(most, f.images()["demo:fail"])
		r, err := f.rollout(ctx)
		if err != nil || r.Status.Phase != v1alpha1.PhaseRolledBack {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
	f.runs(map[string]int{"demo:v1": 20})
	if most > 2 {
		t.Errorf("%d nodes were given the revision, want the 2 of the canary at most", most)
	}
	r := f.phase(v1alpha1.PhaseRolledBack, "cannot be pulled")
	if failed := r.Status.FailedRevisions; len(failed) != 1 || failed[0].Revision != r.Status.TargetRevision || r.Status.StableRevision == r.Status.TargetRevision {
		t.Errorf("the status is %+v", r.Status)
	}
	if !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.RolloutFailed) {
		t.Errorf("the conditions are %+v", r.Status.Conditions)
	}
	f.Eventually("events tell the story", func(context.Context) error {
		for _, reason := range []string{"RolloutStarted", "RolloutStepOpened", "RolloutRolledBack"} {
			if len(f.events(reason)) != 1 {
				return fmt.Errorf("%s: %q", reason, f.events(reason))
			}
		}
		return nil
	})
	// The fixed template is another revision, and is stopped by nothing.
	f.setImage("demo:v2")
	f.phase(v1alpha1.PhaseSoaking)
	f.runs(map[string]int{"demo:v1": 18, "demo:v2": 2})
}

func TestNextStepWaitsForApproval(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 10, "waves: [{name: canary, count: 2, approval: Manual}]")
	f.setImage("demo:v2")
	r := f.phase(v1alpha1.PhaseWaitingForApproval)
	f.runs(map[string]int{"demo:v1": 8, "demo:v2": 2})

	// A node that joins gets the revision that is its own, and so does one that loses
	// its pod, also after a restart of everything.
	f.Restart(testenv.SimulatedNodes(11))
	f.phase(v1alpha1.PhaseWaitingForApproval)
	f.runs(map[string]int{"demo:v1": 9, "demo:v2": 2})
	pods, err := f.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.Containers[0].Image == "demo:v1" {
			if err := f.Client.CoreV1().Pods("default").Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	f.runs(map[string]int{"demo:v1": 9, "demo:v2": 2})

	f.spec(map[string]any{"approved": map[string]any{"revision": "another", "digest": r.Status.TargetDigest, "step": "canary"}})
	f.Eventually("the controller has seen it", func(ctx context.Context) error {
		r, err := f.rollout(ctx)
		if err != nil || r.Status.ObservedGeneration != r.Generation {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	f.phase(v1alpha1.PhaseWaitingForApproval)
	f.spec(map[string]any{"approved": map[string]any{"revision": r.Status.TargetRevision, "digest": r.Status.TargetDigest, "step": "canary"}})
	f.phase(v1alpha1.PhaseComplete)
	f.runs(map[string]int{"demo:v2": 11})
	f.Eventually("everybody is told", func(context.Context) error {
		if waits, done := f.events("RolloutWaitsForApproval"), f.events("RolloutComplete"); len(waits) == 0 || len(done) == 0 {
			return fmt.Errorf("events are %q and %q", waits, done)
		}
		return nil
	})
}

func TestAPolicyThatGoesInTheMiddle(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 10, "waves: [{name: canary, count: 2, soak: 1h}]")
	f.setImage("demo:v2")
	r := f.phase(v1alpha1.PhaseSoaking)
	if err := f.own().RolloutPolicies("default").Delete(t.Context(), "careful", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.phase(v1alpha1.PhasePaused, "its policy was deleted")
	f.Restart()
	f.phase(v1alpha1.PhasePaused, "its policy was deleted")
	f.runs(map[string]int{"demo:v1": 8, "demo:v2": 2})
	f.spec(map[string]any{"approved": map[string]any{"revision": r.Status.TargetRevision, "digest": r.Status.TargetDigest, "step": "WithoutPolicy"}})
	f.runs(map[string]int{"demo:v2": 10})
	f.Eventually("the rollout goes", func(ctx context.Context) error {
		if _, err := f.rollout(ctx); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
}

// One write takes the DaemonSet's label and changes its template: it is held, also by a
// controller that starts after it, until somebody who may approves.
func TestAWriteThatLeavesThePolicyWaits(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 5, "selector: {matchExpressions: [{key: loose, operator: DoesNotExist}]}\nwaves: [{name: canary, count: 1, soak: 1h}]")
	patchDaemonSet(t, f.Env, `{"metadata":{"labels":{"loose":"yes"}},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"demo:v2"}]}}}}`)
	f.phase(v1alpha1.PhasePaused, "no policy selects it any more; approve step WithoutPolicy")
	f.Restart()
	r := f.phase(v1alpha1.PhasePaused, "no policy selects it any more; approve step WithoutPolicy")
	f.runs(map[string]int{"demo:v1": 5})
	f.spec(map[string]any{"approved": map[string]any{"revision": r.Status.TargetRevision, "digest": r.Status.TargetDigest, "step": "WithoutPolicy"}})
	f.runs(map[string]int{"demo:v2": 5})
}

func TestATemplateThatIsEditedInTheMiddle(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 10, "waves: [{name: canary, count: 2, soak: 1h}]")
	f.setImage("demo:v2")
	first := f.phase(v1alpha1.PhaseSoaking).Status
	f.setImage("demo:v3")
	f.runs(map[string]int{"demo:v1": 8, "demo:v3": 2})
	if s := f.phase(v1alpha1.PhaseSoaking).Status; s.StableRevision != first.StableRevision || s.TargetRevision == first.TargetRevision {
		t.Errorf("stable is %s and target %s, were %s and %s", s.StableRevision, s.TargetRevision, first.StableRevision, first.TargetRevision)
	}
	f.setImage("demo:v1")
	f.phase(v1alpha1.PhaseComplete)
	f.runs(map[string]int{"demo:v1": 10})
}

// What failed is remembered when the DaemonSet is deleted and made again.
func TestReplaceByForceKeepsWhatFailed(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 10, "waves: [{name: canary, count: 2, soak: 1h}]")
	f.setImage("demo:fail")
	failed := f.phase(v1alpha1.PhaseHalted).Status.TargetRevision
	ds, err := f.Client.AppsV1().DaemonSets("default").Get(t.Context(), "logs", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Client.AppsV1().DaemonSets("default").Delete(t.Context(), "logs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ds.ObjectMeta = metav1.ObjectMeta{Name: ds.Name, Labels: ds.Labels}
	if _, err := f.Client.AppsV1().DaemonSets("default").Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := f.phase(v1alpha1.PhaseHalted)
	if r.Status.TargetRevision != failed || len(r.Status.FailedRevisions) != 1 {
		t.Errorf("the target is %s, want %s; failed are %+v", r.Status.TargetRevision, failed, r.Status.FailedRevisions)
	}
	f.Eventually("the old pods go", func(context.Context) error {
		if got := f.images(); got["demo:v1"] > 0 {
			return fmt.Errorf("nodes run %v", got)
		}
		return nil
	})
	if got := f.images(); got["demo:fail"] > 0 {
		t.Errorf("nodes were given it again: %v", got)
	}
	f.setImage("demo:v2")
	f.runs(map[string]int{"demo:v2": 10})
	f.phase(v1alpha1.PhaseSoaking)
}
