package daemonset

import (
	"cmp"
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
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/objects/pod"
)

// resizable is an API with so many nodes of 4 cores, a DaemonSet on all of them, and a variant with a formula.
func resizable(t *testing.T, nodes int, change func(*appsv1.DaemonSet)) (a policyAPI, want map[string]string) {
	t.Helper()
	a, want = policyAPI{newFakeAPI(t), func() bool { return false }}, map[string]string{}
	for i := range nodes {
		name := fmt.Sprint("n", i)
		a.add(sizedNode(name, "s", 4))
		want[name] = "plain 176Mi"
	}
	a.add(testVariant("all", "", "", "node.allocatable.memory * 0.01"))
	ds := testDaemonSet("logs")
	if change != nil {
		change(ds)
	}
	a.add(ds)
	return a, want
}

// formula edits the one of the variant.
func formula(t *testing.T, a policyAPI, text string) {
	t.Helper()
	edit(t, a.fakeAPI, "default", "all", func(v *v1alpha1.DaemonSetVariant) {
		v.Spec.Resources["c"].Requests[corev1.ResourceMemory] = text
		v.Generation++
	})
}

// every has all nodes want the same.
func every(want map[string]string, shape string) map[string]string {
	for name := range want {
		want[name] = shape
	}
	return want
}

// underWay are the nodes whose pods are being resized.
func underWay(a policyAPI) (out []string) {
	for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
		r := resizing.RecordOf(p)
		if r == nil {
			continue
		}
		if s, _ := r.StateOf(p); s != resizing.Done {
			out = append(out, pod.TargetNode(p))
		}
	}
	slices.Sort(out)
	return out
}

// answer has the node of a pod that is being resized give it what it asks for, or say why not.
func answer(t *testing.T, a policyAPI, node, reason string) {
	t.Helper()
	for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
		if pod.TargetNode(p) != node {
			continue
		}
		edit(t, a.fakeAPI, "default", p.Name, func(p *corev1.Pod) {
			p.Status.ObservedGeneration = p.Generation
			p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodResizePending
			})
			if reason != "" {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending,
					Status: corev1.ConditionTrue, Reason: reason, Message: "Node didn't have enough " + reason})
			}
		})
	}
}

func wantUnderWay(t *testing.T, a policyAPI, want string) {
	t.Helper()
	eventually(t, func() string {
		if got := fmt.Sprint(underWay(a)); got != want {
			return fmt.Sprintf("%s are being resized, want %s", got, want)
		}
		return ""
	})
}

// Other amounts are given to the pods that run, one node after the other as maxUnavailable has it, by a controller that
// starts in the middle as well. The pods say by what they are made; what the template says comes back in the same way.
func TestAmountsChangeInPlace(t *testing.T) {
	a, want := resizable(t, 4, nil)
	stop := startWithVariants(t, a)
	defer func() { stop() }()
	before := wantDaemons(t, a.fakeAPI, want)
	settled(t, a.fakeAPI, "logs", 4)
	a.mu.Lock()
	a.manualResize = true
	a.mu.Unlock()
	formula(t, a, "node.allocatable.memory * 0.02")
	for i := range 4 {
		name := fmt.Sprint("n", i)
		wantUnderWay(t, a, "["+name+"]")
		eventually(t, func() string {
			ds, err := a.GetDaemonSet(t.Context(), "default", "logs")
			if got := ds.Status; err != nil || got.NumberAvailable != 3 || int(got.UpdatedNumberScheduled) != i+1 {
				return fmt.Sprintf("the status is %+v", got)
			}
			return ""
		})
		if i == 1 { // somebody else goes on
			stop()
			stop = startWithVariants(t, a)
			time.Sleep(50 * time.Millisecond)
			wantUnderWay(t, a, "["+name+"]")
		}
		answer(t, a, name, "")
	}
	settled(t, a.fakeAPI, "logs", 4)
	after := wantDaemons(t, a.fakeAPI, every(want, "plain 336Mi"))
	if got := changed(before, after); len(got) > 0 {
		t.Errorf("%v have another pod", got)
	}
	for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
		mark := variant.MarkOf(&p.ObjectMeta)
		if mark.Words() != "all (c requests 336Mi of memory)" || content.VariantsOf(p.Labels[content.RevisionLabel]) == "" {
			t.Errorf("a pod says %v, %v", p.Annotations, p.Labels)
		}
	}
	stop()
	stop = startWithVariants(t, a)
	time.Sleep(50 * time.Millisecond)
	a.mu.Lock()
	if a.resizes != 4 {
		t.Errorf("pods were resized %d times", a.resizes)
	}
	a.mu.Unlock()
}

// What cannot be done to a running pod replaces it: another class of service, and what the API refuses for good. A refusal
// that may end is waited for.
func TestWhatReplacesAPod(t *testing.T) {
	a, want := resizable(t, 2, nil)
	defer startWithVariants(t, a)()
	before := wantDaemons(t, a.fakeAPI, want)
	var refusal error
	asked := 0
	a.mu.Lock()
	a.refuseResize = func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		asked++
		return refusal
	}
	refusal = apierrors.NewForbidden(resource[kindPod], "p", errors.New("exceeded quota: few"))
	a.mu.Unlock()
	formula(t, a, "node.allocatable.memory * 0.02")
	eventually(t, func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		if asked < 3 {
			return "it is not tried again"
		}
		return ""
	})
	if _, uids := daemons(t, a.fakeAPI); len(changed(before, uids)) > 0 {
		t.Error("a quota that is used up replaces pods")
	}
	a.mu.Lock()
	refusal = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)
	a.mu.Unlock()
	after := wantDaemons(t, a.fakeAPI, every(want, "plain 336Mi"))
	if got := changed(before, after); fmt.Sprint(got) != "[n0 n1]" {
		t.Errorf("%v have another pod", got)
	}
	a.erase(kindVariant, "default", "all")
	gone := wantDaemons(t, a.fakeAPI, every(want, "plain"))
	if got := changed(after, gone); fmt.Sprint(got) != "[n0 n1]" {
		t.Errorf("by another class of service %v have another pod", got)
	}
}

// A node that has no room now is waited for, and its daemon stays; one that can never give so much has its pod replaced.
func TestNodesWithoutRoomForMore(t *testing.T) {
	a, want := resizable(t, 2, nil)
	a.manualResize = true
	defer startWithVariants(t, a)()
	before := wantDaemons(t, a.fakeAPI, want)
	settled(t, a.fakeAPI, "logs", 2)
	formula(t, a, "node.allocatable.memory * 0.02")
	wantUnderWay(t, a, "[n0]")
	answer(t, a, "n0", corev1.PodReasonDeferred)
	eventually(t, func() string {
		ds, err := a.GetDaemonSet(t.Context(), "default", "logs")
		if err != nil {
			return err.Error()
		}
		for _, c := range ds.Status.Conditions {
			if c.Type == "Available" {
				const want = "is to have more than its node has room for: Node didn't have enough Deferred"
				return map[bool]string{false: "it says " + c.Message}[strings.Contains(c.Message, want)]
			}
		}
		return "it says nothing"
	})
	time.Sleep(50 * time.Millisecond)
	if _, uids := daemons(t, a.fakeAPI); len(changed(before, uids)) > 0 {
		t.Error("a node that has no room now has another pod")
	}
	answer(t, a, "n0", "")
	wantUnderWay(t, a, "[n1]")
	answer(t, a, "n1", corev1.PodReasonInfeasible)
	eventually(t, func() string {
		_, uids := daemons(t, a.fakeAPI)
		return map[bool]string{false: fmt.Sprintf("%v have another pod", uids)}[fmt.Sprint(changed(before, uids)) == "[n1]"]
	})
	settled(t, a.fakeAPI, "logs", 2)
	wantDaemons(t, a.fakeAPI, every(want, "plain 336Mi"))
}

// With maxSurge no daemon stops: pods are resized within it, and one that would be restarted for it gets a second beside it.
func TestResizesWithSurge(t *testing.T) {
	surge := func(ds *appsv1.DaemonSet) {
		one, none := intstr.FromInt32(1), intstr.FromInt32(0)
		ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &none, MaxSurge: &one}
	}
	a, want := resizable(t, 3, surge)
	a.manualResize = true
	defer startWithVariants(t, a)()
	before := wantDaemons(t, a.fakeAPI, want)
	settled(t, a.fakeAPI, "logs", 3)
	formula(t, a, "node.allocatable.memory * 0.02")
	for i := range 3 {
		name := fmt.Sprint("n", i)
		wantUnderWay(t, a, "["+name+"]")
		time.Sleep(20 * time.Millisecond)
		wantUnderWay(t, a, "["+name+"]")
		answer(t, a, name, "")
	}
	settled(t, a.fakeAPI, "logs", 3)
	after := wantDaemons(t, a.fakeAPI, every(want, "plain 336Mi"))
	if got := changed(before, after); len(got) > 0 {
		t.Errorf("%v have another pod", got)
	}

	b, want := resizable(t, 2, func(ds *appsv1.DaemonSet) {
		surge(ds)
		ds.Spec.Template.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	})
	defer startWithVariants(t, b)()
	before = wantDaemons(t, b.fakeAPI, want)
	settled(t, b.fakeAPI, "logs", 2)
	formula(t, b, "node.allocatable.memory * 0.02")
	after = wantDaemons(t, b.fakeAPI, every(want, "plain 336Mi"))
	if got := changed(before, after); fmt.Sprint(got) != "[n0 n1]" {
		t.Errorf("%v have another pod", got)
	}
}

// A controller that ends between the two writes of a resize leaves a pod that the next one brings to its end; a write
// without an answer is made once more, and changes nothing.
func TestResizesThatEndInTheMiddle(t *testing.T) {
	a, want := resizable(t, 1, nil)
	stop := startWithVariants(t, a)
	defer func() { stop() }()
	before := wantDaemons(t, a.fakeAPI, want)
	settled(t, a.fakeAPI, "logs", 1)
	stop()
	p := list[*corev1.Pod](a.fakeAPI, kindPod)[0]
	_, err := a.ResizePod(t.Context(), p.Namespace, p.Name,
		[]byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"336Mi"}}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	formula(t, a, "node.allocatable.memory * 0.02")
	stop = startWithVariants(t, a)
	after := wantDaemons(t, a.fakeAPI, every(want, "plain 336Mi"))
	settled(t, a.fakeAPI, "logs", 1)
	if got := changed(before, after); len(got) > 0 {
		t.Errorf("%v have another pod", got)
	}
	a.mu.Lock()
	if a.resizes != 1 {
		t.Errorf("it was resized %d times", a.resizes)
	}
	a.refuseResize = func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.refuseResize = nil
		return noAnswer
	}
	a.mu.Unlock()
	formula(t, a, "node.allocatable.memory * 0.03")
	again := wantDaemons(t, a.fakeAPI, every(want, "plain 496Mi"))
	settled(t, a.fakeAPI, "logs", 1)
	if got := changed(before, again); len(got) > 0 {
		t.Errorf("%v have another pod", got)
	}
}

var noAnswer = apierrors.NewTimeoutError("nobody answers", 1)

// Under a policy other amounts travel in waves. Ones that the canary has no room for count as a failure, and it gets back
// what it had; no pod is replaced on the way there or back, and nobody beyond the canary is touched.
func TestAFormulaTravelsInWaves(t *testing.T) {
	a, want := resizable(t, 4, nil)
	a.manualResize = true
	none := intstr.FromInt32(0)
	a.add(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "careful", Generation: 1},
		Spec: v1alpha1.RolloutPolicySpec{
			Waves:   []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "n0"}}}},
			Failure: v1alpha1.Failure{Max: &none, Then: v1alpha1.FailureRollback}}})
	stop := startWithVariants(t, a)
	defer func() { stop() }()
	before := wantDaemons(t, a.fakeAPI, want)
	phase := func(want v1alpha1.Phase) { t.Helper(); wantPhase(t, a, want, "") }
	phase(v1alpha1.PhaseComplete)
	formula(t, a, "node.allocatable.memory * 0.5")
	wantUnderWay(t, a, "[n0]")
	answer(t, a, "n0", corev1.PodReasonDeferred)
	phase(v1alpha1.PhaseRolledBack)
	wantUnderWay(t, a, "[n0]")
	stop()
	stop = startWithVariants(t, a)
	wantDaemons(t, a.fakeAPI, want)
	answer(t, a, "n0", "")
	eventually(t, func() string {
		ds, err := a.GetDaemonSet(t.Context(), "default", "logs")
		if err != nil || ds.Status.NumberAvailable != 4 {
			return fmt.Sprintf("the status is %+v", ds.Status)
		}
		return ""
	})
	formula(t, a, "node.allocatable.memory * 0.02")
	for _, name := range []string{"n0", "n1", "n2", "n3"} {
		wantUnderWay(t, a, "["+name+"]")
		answer(t, a, name, "")
	}
	phase(v1alpha1.PhaseComplete)
	after := wantDaemons(t, a.fakeAPI, every(maps.Clone(want), "plain 336Mi"))
	if got := changed(before, after); len(got) > 0 {
		t.Errorf("%v have another pod", got)
	}
	if got := revisions(a); len(got) != 1 {
		t.Errorf("pods are of revisions %v", got)
	}
}

// A container that restarted often before its pod was resized hides nothing of what another does since: that is a failure
// after as many restarts as ever.
func TestRestartsFromBeforeAResize(t *testing.T) {
	a, want := resizable(t, 1, nil)
	a.manualResize = true
	stop := startWithVariants(t, a)
	defer stop()
	wantDaemons(t, a.fakeAPI, want)
	settled(t, a.fakeAPI, "logs", 1)
	restarted := func(c, proxy int32) {
		p := list[*corev1.Pod](a.fakeAPI, kindPod)[0]
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		edit(t, a.fakeAPI, "default", p.Name, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: running, RestartCount: c},
				{Name: "proxy", State: running, RestartCount: proxy}}
		})
	}
	restarted(0, 6)
	none := intstr.FromInt32(0)
	a.add(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "careful", Generation: 1},
		Spec: v1alpha1.RolloutPolicySpec{
			Waves: []v1alpha1.Wave{{Name: "canary", Soak: "1h",
				Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "n0"}}}},
			Failure: v1alpha1.Failure{Max: &none, Then: v1alpha1.FailureHalt}}})
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	formula(t, a, "node.allocatable.memory * 0.02")
	wantUnderWay(t, a, "[n0]")
	p := list[*corev1.Pod](a.fakeAPI, kindPod)[0]
	if r := resizing.RecordOf(p); r == nil || !maps.Equal(r.RestartsBy, map[string]int32{"proxy": 6}) || r.Restarts != 6 {
		t.Errorf("it remembers %+v", r)
	}
	answer(t, a, "n0", "")
	restarted(3, 6)
	wantPhase(t, a, v1alpha1.PhaseHalted, "3 restarts")
}

// revisions are those that pods say.
func revisions(a policyAPI) map[string]types.UID {
	out := map[string]types.UID{}
	for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
		out[cmp.Or(p.Labels[content.RevisionLabel], "none")] = p.UID
	}
	return out
}

// A change that is taken back after a resize that ended half way is taken back on the pod too: by a formula that is edited
// back, and by a variant that goes.
func TestResizesThatAreTakenBackHalfWay(t *testing.T) {
	asked := func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"memory": apiresource.MustParse("176Mi")}
	}
	none := intstr.FromInt32(0)
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "careful", Generation: 1},
		Spec: v1alpha1.RolloutPolicySpec{
			Waves:   []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "n0"}}}},
			Failure: v1alpha1.Failure{Max: &none, Then: v1alpha1.FailureRollback}}}
	const more = "node.allocatable.memory * 0.02"
	edited := func(text string) func(*testing.T, policyAPI) {
		return func(t *testing.T, a policyAPI) { formula(t, a, text) }
	}
	for name, c := range map[string]struct {
		template   func(*appsv1.DaemonSet)
		policy     *v1alpha1.RolloutPolicy
		come, back func(*testing.T, policyAPI)
	}{
		"a formula": {nil, nil, edited(more), edited("node.allocatable.memory * 0.01")},
		"a variant": {asked,
			nil, func(_ *testing.T, a policyAPI) { a.add(testVariant("first", "", "", more)) },
			func(_ *testing.T, a policyAPI) {
				a.erase(kindVariant, "default", "first")
				for _, r := range list[*appsv1.ControllerRevision](a.fakeAPI, kindRevision) {
					if strings.Contains(r.Name, "-variants-") {
						a.erase(kindRevision, r.Namespace, r.Name)
					}
				}
			}},
		"under a policy": {nil, policy, edited(more), edited("node.allocatable.memory * 0.01")},
	} {
		t.Run(name, func(t *testing.T) {
			a, want := resizable(t, 2, c.template)
			if c.template != nil {
				a.erase(kindVariant, "default", "all")
			}
			if c.policy != nil {
				a.add(c.policy.DeepCopy())
			}
			stop := startWithVariants(t, a)
			defer func() { stop() }()
			before := wantDaemons(t, a.fakeAPI, want)
			settled(t, a.fakeAPI, "logs", 2)
			refuseSecondWrite(a, true)
			c.come(t, a)
			wantDaemons(t, a.fakeAPI, map[string]string{"n0": "plain 336Mi", "n1": "plain 176Mi"})
			stop()
			c.back(t, a)
			refuseSecondWrite(a, false)
			stop = startWithVariants(t, a)
			after := wantDaemons(t, a.fakeAPI, want)
			settled(t, a.fakeAPI, "logs", 2)
			if got := changed(before, after); len(got) > 0 {
				t.Errorf("%v have another pod", got)
			}
			eventually(t, func() string { // it is taken off by the write after that of the amounts
				for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
					if text, is := p.Annotations[resizing.IntentAnnotation]; is {
						return "pod " + p.Name + " says " + text
					}
				}
				return ""
			})
		})
	}
}

// refuseSecondWrite has nobody answer who says on a pod that it was resized.
func refuseSecondWrite(a policyAPI, is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusePatch = func(patch []byte) error {
		if is && strings.Contains(string(patch), resizing.Annotation+`"`) {
			return noAnswer
		}
		return nil
	}
}

// A pod whose node has no room for what it is to have is not done because somebody looks into it with a container for
// debugging, which is another generation of the pod: the change goes no further.
func TestWhoLooksIntoAPodEndsNoResize(t *testing.T) {
	for _, reason := range []string{corev1.PodReasonDeferred, corev1.PodReasonInfeasible} {
		a, want := resizable(t, 2, nil)
		a.manualResize = true
		stop := startWithVariants(t, a)
		before := wantDaemons(t, a.fakeAPI, want)
		settled(t, a.fakeAPI, "logs", 2)
		formula(t, a, "node.allocatable.memory * 0.02")
		wantUnderWay(t, a, "[n0]")
		for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
			if pod.TargetNode(p) == "n0" {
				edit(t, a.fakeAPI, "default", p.Name, func(p *corev1.Pod) {
					p.Spec.EphemeralContainers = []corev1.EphemeralContainer{
						{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
					p.Generation++
				})
			}
		}
		answer(t, a, "n0", reason)
		if reason == corev1.PodReasonDeferred {
			time.Sleep(100 * time.Millisecond)
			wantUnderWay(t, a, "[n0]")
		} else {
			eventually(t, func() string {
				_, uids := daemons(t, a.fakeAPI)
				return map[bool]string{false: "the pod is not replaced"}[fmt.Sprint(changed(before, uids)) == "[n0]"]
			})
		}
		stop()
	}
}
