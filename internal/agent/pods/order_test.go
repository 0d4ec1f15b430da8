package pods_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/startorder"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func rebooted(cfg *pods.Config) { cfg.Rebooted = true }

// daemon is a pod of a DaemonSet that a NodeStartup lists in a group.
func daemon(name string, group int) *corev1.Pod {
	pod := podstest.Pod(name)
	pod.Annotations = map[string]string{nodestartup.GroupAnnotation: strconv.Itoa(group)}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: name, Controller: new(true)}}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	return pod
}

// begin runs the pods on a node that began just now; list is what the runtime has. Readiness is what the prober says.
func begin(t *testing.T, list []pleg.PodRef, bound []*corev1.Pod, options ...func(*pods.Config)) (*podstest.Runtime,
	*podstest.API, *pods.Manager, *podstest.Prober) {
	t.Helper()
	r, a, prober := podstest.NewRuntime(), podstest.NewAPI(), podstest.NewProber()
	options = append(options, func(cfg *pods.Config) { cfg.Prober = prober })
	p := podstest.Start(t, r, a, options...)
	for _, pod := range bound {
		a.Create(pod)
	}
	a.Watch(p)
	p.RuntimeListed(list)
	return r, a, p, prober
}

// ready has the pod's readiness probe succeed.
func ready(p *pods.Manager, prober *podstest.Prober, pod *corev1.Pod) {
	prober.Set(pod.UID, podworker.Probe{Container: "main", Known: true, Ready: true, Started: true})
	p.ProbeChanged(pod.UID)
}

func wantQuiet(t *testing.T, r *podstest.Runtime) {
	t.Helper()
	time.Sleep(100 * time.Millisecond)
	if len(r.Done) > 0 {
		t.Errorf("the runtime was asked to %s", <-r.Done)
	}
}

// TestPodsStartInOrderAfterAReboot: a daemon of a later group starts when those before it are ready, an ordinary pod
// last; until then each says for whom it waits, and is not called ready.
func TestPodsStartInOrderAfterAReboot(t *testing.T) {
	cni, log, web := daemon("cni", 1), daemon("log", 2), podstest.Pod("web")
	web.Status = corev1.PodStatus{Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	dead := []pleg.PodRef{{UID: web.UID, Namespace: "default", Name: "web"}}
	r, a, p, prober := begin(t, dead, []*corev1.Pod{web, log, cni}, rebooted)
	r.Await(t, "sandbox cni", "start cni/main")
	a.AwaitEvent(t, "log: Normal WaitsForDaemons The machine has started again: waiting until group 1 of its daemons is "+
		"ready, which lacks default/cni")
	a.Await(t, web.UID, "not to be ready, and to say why", func(pod *corev1.Pod) bool {
		return !podstest.IsReady(pod) && strings.Contains(nodestartup.WaitsFor(pod), "which lacks default/cni; until ")
	})
	p.ProbeChanged(log.UID) // no news for whom it waits
	wantQuiet(t, r)
	if n := strings.Count(a.Log(), "log: Normal WaitsForDaemons"); n != 1 {
		t.Errorf("people were told %d times that it waits for the same daemons", n)
	}
	ready(p, prober, cni)
	r.Await(t, "sandbox log", "start log/main")
	a.AwaitEvent(t, "web: Normal WaitsForDaemons The machine has started again: waiting until group 2 of its daemons is "+
		"ready, which lacks default/log")
	wantQuiet(t, r)
	ready(p, prober, log)
	r.Await(t, "sandbox web", "start web/main")
	for _, pod := range []*corev1.Pod{log, web} {
		a.Await(t, pod.UID, "to wait no more", func(pod *corev1.Pod) bool { return nodestartup.WaitsFor(pod) == "" })
	}
}

// TestNothingIsHeldButAfterAReboot: not when the agent alone starts again, nor while a container runs.
func TestNothingIsHeldButAfterAReboot(t *testing.T) {
	for name, options := range map[string][]func(*pods.Config){"the same start": nil, "a pod runs": {rebooted}} {
		t.Run(name, func(t *testing.T) {
			web := podstest.Pod("web")
			list := []pleg.PodRef{{UID: "other", Namespace: "default", Name: "other", Runs: options != nil}}
			r, _, _, _ := begin(t, list, []*corev1.Pod{daemon("cni", 1), web}, options...)
			podstest.Eventually(t, "both run", func() bool { return len(r.Done) == 4 })
		})
	}
}

// TestStaticPodsAreNeverHeld: nor do those that run already let others start.
func TestStaticPodsAreNeverHeld(t *testing.T) {
	static, web := podstest.StaticPod("static", "a"), podstest.Pod("web")
	r, a, prober := podstest.NewRuntime(), podstest.NewAPI(), podstest.NewProber()
	p := podstest.Start(t, r, a, rebooted, podstest.WithStaticPods, func(cfg *pods.Config) { cfg.Prober = prober })
	a.Create(daemon("cni", 1))
	a.Create(web)
	p.RuntimeListed(nil)
	p.SetStatics([]*corev1.Pod{static})
	r.Await(t, "sandbox static", "start static/main")
	a.Watch(p)
	p.RuntimeListed([]pleg.PodRef{{UID: static.UID, Namespace: "default", Name: "static", Runs: true}})
	r.Await(t, "sandbox cni", "start cni/main")
	wantQuiet(t, r)
}

// TestHeldPodsEnd: one that is deleted, or evicted, waits for nobody; one that is gone is not waited for.
func TestHeldPodsEnd(t *testing.T) {
	cni, deleted, evicted, web := daemon("cni", 1), podstest.Pod("deleted"), podstest.Pod("evicted"), podstest.Pod("web")
	r, a, p, _ := begin(t, nil, []*corev1.Pod{cni, deleted, evicted, web}, rebooted)
	r.Await(t, "sandbox cni", "start cni/main")
	for _, pod := range []*corev1.Pod{deleted, evicted} {
		a.AwaitEvent(t, pod.Name+": Normal WaitsForDaemons The machine has started again: waiting until group 1 of its "+
			"daemons is ready, which lacks default/cni")
	}
	a.MarkDeleted(deleted.UID, 1)
	a.Await(t, deleted.UID, "to be gone", podstest.IsGone)
	p.Terminate(evicted.UID, podworker.Termination{Reason: "Evicted", Grace: 1})
	a.Await(t, evicted.UID, "to have failed", podstest.HasPhase(corev1.PodFailed))
	a.MarkDeleted(cni.UID, 1)
	podstest.Eventually(t, "the other pod runs", func() bool {
		now, err := r.Observe(t.Context(), web.UID)
		return err == nil && len(now.Containers) == 1
	})
}

// stubborn has containers that take long to stop.
type stubborn struct{ *podstest.Runtime }

func (stubborn) StopContainer(ctx context.Context, _ string, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestNobodyWaitsForADaemonThatEnds: not while it takes its time either, it will not get ready any more.
func TestNobodyWaitsForADaemonThatEnds(t *testing.T) {
	for name, end := range map[string]func(*podstest.API, *pods.Manager, *corev1.Pod){
		"gone":    func(a *podstest.API, _ *pods.Manager, cni *corev1.Pod) { a.Drop(cni.UID) },
		"deleted": func(a *podstest.API, _ *pods.Manager, cni *corev1.Pod) { a.MarkDeleted(cni.UID, 60) },
		"evicted": func(_ *podstest.API, p *pods.Manager, cni *corev1.Pod) {
			p.Terminate(cni.UID, podworker.Termination{Reason: "Evicted", Grace: 60})
		},
	} {
		t.Run(name, func(t *testing.T) {
			cni, web := daemon("cni", 1), podstest.Pod("web")
			r, a, p, _ := begin(t, nil, []*corev1.Pod{cni, web}, rebooted, func(cfg *pods.Config) {
				cfg.Runtime = stubborn{cfg.Runtime.(*podstest.Runtime)}
			})
			r.Await(t, "sandbox cni", "start cni/main")
			end(a, p, cni)
			r.Await(t, "sandbox web", "start web/main")
		})
	}
}

// TestNobodyWaitsForADaemonThatEnded: by itself, that is, and it does not run again.
func TestNobodyWaitsForADaemonThatEnded(t *testing.T) {
	cni, web := daemon("cni", 1), podstest.Pod("web")
	cni.Spec.RestartPolicy = corev1.RestartPolicyNever
	r, _, p, _ := begin(t, nil, []*corev1.Pod{cni, web}, rebooted)
	r.Await(t, "sandbox cni", "start cni/main")
	runs, err := r.Observe(t.Context(), cni.UID)
	if err != nil {
		t.Fatal(err)
	}
	r.SetState("exit cni/main", runs.Containers[0].ID, podworker.Exited)
	p.RuntimeChanged(cni.UID)
	podstest.Eventually(t, "the other pod runs", func() bool {
		now, err := r.Observe(t.Context(), web.UID)
		return err == nil && len(now.Containers) == 1
	})
}

// TestGroupThatOpens: after the group's timeout the next one starts, with no news to wake it, long before the bound.
func TestGroupThatOpens(t *testing.T) {
	cni := daemon("cni", 1)
	cni.Annotations[nodestartup.TimeoutAnnotation] = "20s"
	began := time.Now()
	r, _, _, _ := begin(t, nil, []*corev1.Pod{cni, daemon("log", 2), podstest.Pod("web")}, rebooted,
		func(cfg *pods.Config) { cfg.Clock = fast{clock.RealClock{}, began} })
	r.Await(t, "sandbox cni", "start cni/main")
	r.Await(t, "sandbox log", "start log/main")
	if passed := time.Since(began) * times; passed < 20*time.Second || passed > startorder.Bound-20*time.Second {
		t.Errorf("the second group began after %v, want 20s", passed)
	}
	wantQuiet(t, r)
	r.Await(t, "sandbox web", "start web/main")
}

// TestOrderAlone: a node without its control plane goes by the pods that it remembers, but for those that have ended.
func TestOrderAlone(t *testing.T) {
	ended, cni, web := daemon("ended", 1), daemon("cni", 2), podstest.Pod("web")
	r, a, prober := podstest.NewRuntime(), podstest.NewAPI(), podstest.NewProber()
	p := podstest.Start(t, r, a, rebooted, func(cfg *pods.Config) { cfg.Prober = prober })
	a.Leave(true)
	p.Recall([]remember.Pod{{Pod: web}, {Pod: cni}, {Pod: ended, Ended: &corev1.PodStatus{Phase: corev1.PodFailed}}})
	p.RuntimeListed(nil)
	p.AloneForLong()
	p.RuntimeListed(nil)
	r.Await(t, "sandbox cni", "start cni/main")
	wantQuiet(t, r)
	ready(p, prober, cni)
	r.Await(t, "sandbox web", "start web/main")
}

// TestRememberedDaemonThatIsGone: nobody waits for one that the control plane, back again, does not have any more.
func TestRememberedDaemonThatIsGone(t *testing.T) {
	cni, web := daemon("cni", 1), podstest.Pod("web")
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a, rebooted, func(cfg *pods.Config) { cfg.Runtime = stubborn{r} })
	a.Leave(true)
	p.Recall([]remember.Pod{{Pod: web}, {Pod: cni}})
	p.RuntimeListed(nil)
	p.AloneForLong()
	p.RuntimeListed(nil)
	r.Await(t, "sandbox cni", "start cni/main")
	a.Leave(false)
	a.Create(web)
	a.Watch(p)
	r.Await(t, "sandbox web", "start web/main")
}

// TestDaemonThatNeverGetsReady: after the bound all start, with no news to wake them.
func TestDaemonThatNeverGetsReady(t *testing.T) {
	r, _, _, _ := begin(t, nil, []*corev1.Pod{daemon("cni", 1), podstest.Pod("web")}, rebooted,
		func(cfg *pods.Config) { cfg.Clock = fast{clock.RealClock{}, time.Now()} })
	r.Await(t, "sandbox cni", "start cni/main")
	r.Await(t, "sandbox web", "start web/main")
}

// fast is a clock that is 200 times too fast.
type fast struct {
	clock.RealClock
	began time.Time
}

const times = 200

func (f fast) Now() time.Time                         { return f.began.Add(time.Since(f.began) * times) }
func (f fast) Since(t time.Time) time.Duration        { return f.Now().Sub(t) }
func (f fast) NewTimer(d time.Duration) clock.Timer   { return f.RealClock.NewTimer(d / times) }
func (f fast) After(d time.Duration) <-chan time.Time { return f.RealClock.After(d / times) }
