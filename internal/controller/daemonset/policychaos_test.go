package daemonset

import (
	"context"
	"fmt"
	"math/rand"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/pod"
)

// policyAPI is a fakeAPI that serves Everynode's own kinds too.
type policyAPI struct {
	*fakeAPI
	// unlucky tells, with the lock held, that a write is refused.
	unlucky func() bool
}

func (a policyAPI) GetRollout(_ context.Context, namespace, name string) (*v1alpha1.DaemonSetRollout, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return get[*v1alpha1.DaemonSetRollout](a.fakeAPI, kindRollout, namespace, name)
}

func (a policyAPI) CreateRollout(_ context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := get[*v1alpha1.DaemonSetRollout](a.fakeAPI, kindRollout, r.Namespace, r.Name); err == nil {
		return nil, apierrors.NewAlreadyExists(resource[kindRollout], r.Name)
	}
	if a.unlucky() {
		return nil, apierrors.NewTooManyRequestsError("bad luck")
	}
	return a.put(r).(*v1alpha1.DaemonSetRollout), nil
}

// overwrite writes what came from the version that is stored.
func overwrite[T client.Object](a policyAPI, kind string, next T, into func(stored T)) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var none T
	stored, err := get[T](a.fakeAPI, kind, next.GetNamespace(), next.GetName())
	switch {
	case err != nil:
		return none, err
	case stored.GetResourceVersion() != next.GetResourceVersion():
		return none, apierrors.NewConflict(resource[kind], next.GetName(), fmt.Errorf("an old version"))
	case a.unlucky():
		return none, apierrors.NewTooManyRequestsError("bad luck")
	}
	into(stored)
	return a.put(stored).(T), nil
}

func (a policyAPI) UpdateRollout(_ context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error) {
	return overwrite(a, kindRollout, r, func(stored *v1alpha1.DaemonSetRollout) { stored.Labels = r.Labels })
}

func (a policyAPI) UpdateRolloutStatus(_ context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error) {
	return overwrite(a, kindRollout, r, func(stored *v1alpha1.DaemonSetRollout) { stored.Status = r.Status })
}

func (a policyAPI) DeleteRollout(_ context.Context, r *v1alpha1.DaemonSetRollout) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(kindRollout, keyOf(r.Namespace, r.Name))
	return nil
}

func (a policyAPI) UpdatePolicyStatus(_ context.Context, p *v1alpha1.RolloutPolicy) (*v1alpha1.RolloutPolicy, error) {
	return overwrite(a, kindPolicy, p, func(stored *v1alpha1.RolloutPolicy) { stored.Status = p.Status })
}

func startWithPolicies(t *testing.T, a policyAPI) (stop func()) {
	t.Helper()
	return startWatched(t, a, a, nil)
}

func startWatched(t *testing.T, a policyAPI, informers Informers, watches *Watches) (stop func()) {
	t.Helper()
	c, err := New(Config{Informers: informers, Writer: a, Recorder: record.NewFakeRecorder(100000), Rollouts: a, Watches: watches})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// TestChaosUnderAPolicy lets nodes come and go, templates change, pods vanish, people
// pause and change the policy, the API refuse and forget, with a new controller now and
// then. Nobody approves the canary: no other node is ever given anything but the
// stable revision, nor loses its daemon to a template that leaves it out. In the end
// somebody does, and everything is as it should be.
func TestChaosUnderAPolicy(t *testing.T) {
	// How far a change comes in a round goes by the machine; in all of them something has to happen.
	given, taken := 0, 0
	for seed := range int64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { chaosUnderAPolicy(t, rand.New(rand.NewSource(seed)), &given, &taken) })
	}
	if given == 0 || taken == 0 {
		t.Errorf("the canary was given another revision %d times, and lost its daemon %d times", given, taken)
	}
}

func policyNode(i int) *corev1.Node {
	n := testNode(fmt.Sprint("n", i))
	n.Labels = map[string]string{"rack": fmt.Sprint(i % 4)}
	if i < 2 {
		n.Labels["fleet"] = "canary"
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func chaosUnderAPolicy(t *testing.T, r *rand.Rand, given, taken *int) {
	trouble := false
	a := policyAPI{newFakeAPI(t), func() bool { return trouble && r.Intn(5) == 0 }} // called with the API's lock held
	a.lag.Store(int64(5 * time.Millisecond))
	stable := ""
	var wrong []string
	a.refuseCreate = func(p *corev1.Pod) error {
		hash := p.Labels[appsv1.ControllerRevisionHashLabelKey]
		if canary := pod.TargetNode(p) == "n0" || pod.TargetNode(p) == "n1"; stable != "" && hash != stable && !canary {
			wrong = append(wrong, fmt.Sprintf("%s was given %s, stable is %s", pod.TargetNode(p), hash, stable))
		} else if stable != "" && canary && hash != stable {
			*given++
		}
		if a.unlucky() {
			return apierrors.NewTooManyRequestsError("bad luck")
		}
		return nil
	}
	a.refuseDelete = func() error {
		if a.unlucky() {
			return apierrors.NewTooManyRequestsError("bad luck")
		}
		return nil
	}
	a.deleting = func(p *corev1.Pod) {
		hash, node := p.Labels[appsv1.ControllerRevisionHashLabelKey], pod.TargetNode(p)
		_, err := get[*corev1.Node](a.fakeAPI, kindNode, "", node)
		if stable != "" && hash == stable && err == nil && pod.IsReady(p) && node != "n0" && node != "n1" {
			wrong = append(wrong, node+" lost its daemon")
		} else if stable != "" && hash == stable && pod.IsReady(p) {
			*taken++
		}
	}
	a.loseAnswer = a.unlucky
	nodes := map[int]bool{}
	for i := range 10 {
		nodes[i] = true
		a.add(policyNode(i))
	}
	a.add(testDaemonSet("logs"))
	limit := intstr.FromString("100%")
	a.add(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "careful", Generation: 1}, Spec: v1alpha1.RolloutPolicySpec{
		Waves:   []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "canary"}}, Approval: v1alpha1.ApprovalManual}},
		Failure: v1alpha1.Failure{Max: &limit}, NodeFaults: v1alpha1.NodeFaults{Max: &limit},
		Domains: []v1alpha1.Domain{{Key: "rack", MaxUnavailable: intstr.FromInt32(2)}},
	}})
	stop := startWithPolicies(t, a)
	defer func() { stop() }()
	complete := func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		d, err := get[*v1alpha1.DaemonSetRollout](a.fakeAPI, kindRollout, "default", "logs")
		if err != nil {
			return err.Error()
		}
		ds, err := get[*appsv1.DaemonSet](a.fakeAPI, kindDaemonSet, "default", "logs")
		if err != nil {
			return err.Error()
		}
		if s := &d.Status; s.Phase != v1alpha1.PhaseComplete || s.DaemonSetGeneration != ds.Generation {
			return fmt.Sprintf("the rollout is %s: %s", s.Phase, s.Message)
		}
		stable = d.Status.StableRevision
		return ""
	}
	settled(t, a.fakeAPI, "logs", 10)
	eventually(t, complete)
	a.mu.Lock()
	trouble = true
	a.mu.Unlock()
	for step := range 200 {
		a.mu.Lock()
		i, choice, pick := 2+r.Intn(10), r.Intn(40), r.Intn(1<<20)
		a.mu.Unlock()
		switch {
		case choice < 5 && !nodes[i]:
			nodes[i] = true
			a.add(policyNode(i))
		case choice < 5 && len(nodes) > 4:
			delete(nodes, i)
			a.loseNode(fmt.Sprint("n", i))
		case choice < 10:
			edit(t, a.fakeAPI, "default", "logs", func(ds *appsv1.DaemonSet) {
				ds.Spec.Template.Spec.NodeSelector = []map[string]string{nil, nil, {"rack": "0"}, {"rack": "typo"}}[pick%4]
				ds.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("demo:v", step)
				ds.Generation++
			})
		case choice < 18:
			a.harm(pick, choice < 14)
		case choice == 18:
			edit(t, a.fakeAPI, "default", "logs", func(d *v1alpha1.DaemonSetRollout) { d.Spec.Paused, d.Generation = pick%2 == 0, d.Generation+1 })
		case choice == 19:
			edit(t, a.fakeAPI, "default", "careful", func(p *v1alpha1.RolloutPolicy) {
				p.Spec.Domains[0].MaxUnavailable, p.Generation = intstr.FromInt32(int32(1+pick%3)), p.Generation+1
			})
		case choice == 20:
			stop()
			stop = startWithPolicies(t, a)
		}
		time.Sleep(2 * time.Millisecond)
	}
	a.mu.Lock()
	trouble = false
	a.mu.Unlock()
	if len(wrong) > 0 {
		t.Fatalf("nodes were given what was not theirs: %q", wrong)
	}
	a.mu.Lock()
	stable = "" // from here on everybody may get everything
	a.mu.Unlock()
	edit(t, a.fakeAPI, "default", "logs", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = nil })
	setImage(t, a.fakeAPI, "logs", "demo:last")
	eventually(t, func() string {
		d, err := a.GetRollout(t.Context(), "default", "logs")
		if err != nil {
			return err.Error()
		}
		edit(t, a.fakeAPI, "default", "logs", func(d *v1alpha1.DaemonSetRollout) {
			d.Generation++
			d.Spec = v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: d.Status.TargetRevision, Digest: d.Status.TargetDigest, Step: v1alpha1.AllSteps}}
		})
		time.Sleep(20 * time.Millisecond)
		if why := complete(); why != "" {
			return fmt.Sprintf("%s (%v)", why, d.Status.Counts)
		}
		return ""
	})
	settled(t, a.fakeAPI, "logs", int32(len(nodes)))
	if len(a.twins) > 0 {
		t.Errorf("nodes had two pods: %q", a.twins)
	}
}
