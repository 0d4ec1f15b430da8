package pods_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/hollow"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/status"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// machine is a container runtime that takes its time, answers errors after it did what it was asked, and goes on with
// what it was asked by an agent that is no more.
type machine struct {
	api *podstest.API

	mu   sync.Mutex
	rand *rand.Rand
	pods map[types.UID]*podworker.Runtime
	// objects are the pods as their sandboxes were made.
	objects map[types.UID]*corev1.Pod
	going   sync.WaitGroup
	log     []string
	faults  []string
}

var errLate = errors.New("context deadline exceeded")

// lag is how long something takes; mostly not for long.
func (m *machine) lag() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rand.IntN(8) == 0 {
		return time.Duration(m.rand.Int64N(int64(20 * time.Second)))
	}
	return time.Duration(m.rand.Int64N(int64(200 * time.Millisecond)))
}

func (m *machine) chance(of int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(of) == 0
}

func (m *machine) note(format string, args ...any) {
	m.log = append(m.log, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// Say notes what the test does.
func (m *machine) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(format, args...)
}

// act does something after a while, and answers after another one, unless whoever asked is no more; it does it all the
// same.
func (m *machine) act(ctx context.Context, what string, do func() error) error {
	if m.chance(12) {
		m.say("fails: %s", what)
		return errors.New("unavailable")
	}
	before, after, late := m.lag(), m.lag(), m.chance(12)
	done := make(chan error, 1)
	m.going.Go(func() {
		time.Sleep(before)
		m.mu.Lock()
		err := do()
		m.note("%s: %v", what, err)
		m.mu.Unlock()
		time.Sleep(after)
		if late && err == nil {
			err = errLate
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *machine) Observe(ctx context.Context, uid types.UID) (*podworker.Runtime, error) {
	out := &podworker.Runtime{}
	err := m.act(ctx, "look at "+string(uid), func() error {
		if p := m.pods[uid]; p != nil {
			out.Sandboxes, out.Containers = slices.Clone(p.Sandboxes), slices.Clone(p.Containers)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (m *machine) CreateSandbox(ctx context.Context, pod *corev1.Pod, attempt uint32) (string, error) {
	id := fmt.Sprintf("%s/%d", pod.UID, attempt)
	return id, m.act(ctx, "make sandbox "+id, func() error {
		p := m.pods[pod.UID]
		if p == nil {
			p = &podworker.Runtime{}
			m.pods[pod.UID], m.objects[pod.UID] = p, pod
		}
		if slices.ContainsFunc(p.Sandboxes, func(s podworker.Sandbox) bool { return s.ID == id }) {
			return errors.New("the name is reserved")
		}
		p.Sandboxes = append(p.Sandboxes, podworker.Sandbox{ID: id, Attempt: attempt, Ready: true, HostNetwork: true,
			CreatedAt: time.Now()})
		return nil
	})
}

func (m *machine) StopSandbox(ctx context.Context, id string) error {
	return m.act(ctx, "stop sandbox "+id, func() error {
		for _, p := range m.pods {
			for i := range p.Sandboxes {
				if p.Sandboxes[i].ID == id {
					p.Sandboxes[i].Ready = false
				}
			}
			for i := range p.Containers {
				if c := &p.Containers[i]; c.SandboxID == id && c.State == podworker.Running {
					c.State, c.FinishedAt, c.ExitCode = podworker.Exited, time.Now(), 137
				}
			}
		}
		return nil
	})
}

func (m *machine) RemoveSandbox(ctx context.Context, id string) error {
	return m.act(ctx, "remove sandbox "+id, func() error {
		for _, p := range m.pods {
			p.Sandboxes = slices.DeleteFunc(p.Sandboxes, func(s podworker.Sandbox) bool { return s.ID == id })
		}
		return nil
	})
}

func (m *machine) CreateContainer(ctx context.Context, spec cri.ContainerSpec) (string, error) {
	id := fmt.Sprintf("%s/%s/%d", spec.Pod.UID, spec.Container.Name, spec.Attempt)
	return id, m.act(ctx, "make container "+id, func() error {
		p := m.pods[spec.Pod.UID]
		if p == nil || !slices.ContainsFunc(p.Sandboxes, func(s podworker.Sandbox) bool { return s.ID == spec.SandboxID }) {
			return errors.New("no such sandbox")
		}
		if slices.ContainsFunc(p.Containers, func(c podworker.Container) bool { return c.ID == id }) {
			return errors.New("the name is reserved")
		}
		p.Containers = append(p.Containers, podworker.Container{ID: id, Name: spec.Container.Name, Attempt: spec.Attempt,
			SandboxID: spec.SandboxID, CreatedAt: time.Now()})
		return nil
	})
}

func (m *machine) StartContainer(ctx context.Context, pod *corev1.Pod, _, id string, _ uint32) error {
	return m.act(ctx, "start container "+id, func() error {
		p := m.pods[pod.UID]
		for i := range p.Containers {
			c := &p.Containers[i]
			if c.ID != id {
				continue
			}
			if !slices.ContainsFunc(p.Sandboxes, func(s podworker.Sandbox) bool { return s.ID == c.SandboxID && s.Ready }) {
				return errors.New("the sandbox is not ready")
			}
			c.State, c.StartedAt = podworker.Running, time.Now()
			m.runs(pod)
			return nil
		}
		return errors.New("no such container")
	})
}

// runs notes what is wrong if a container of the pod runs now. The caller holds mu.
func (m *machine) runs(pod *corev1.Pod) {
	if got := m.api.Get(pod.UID); got != nil && podfacts.IsTerminal(got) {
		m.fault("%s runs, and the API calls it %s", pod.Name, got.Status.Phase)
	}
	var sum int64
	var names []string
	for uid, p := range m.pods {
		if slices.ContainsFunc(p.Containers, func(c podworker.Container) bool { return c.State == podworker.Running }) {
			requests := podfacts.Requests(m.objects[uid])
			sum += requests.Cpu().MilliValue()
			names = append(names, m.objects[uid].Name+"="+requests.Cpu().String())
		}
	}
	if sum > 2000 {
		m.fault("more run than there is room for: %s", strings.Join(names, " "))
	}
}

func (m *machine) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
	m.note("FAULT "+format, args...)
}

func (m *machine) StopContainer(ctx context.Context, id string, _ time.Duration) error {
	return m.act(ctx, "stop container "+id, func() error {
		m.exit(id, 0)
		return nil
	})
}

// exit has a container exit. The caller holds mu.
func (m *machine) exit(id string, code int32) {
	for _, p := range m.pods {
		for i := range p.Containers {
			if c := &p.Containers[i]; c.ID == id && c.State == podworker.Running {
				c.State, c.FinishedAt, c.ExitCode = podworker.Exited, time.Now(), code
			}
		}
	}
}

func (m *machine) RemoveContainer(ctx context.Context, id string) error {
	return m.act(ctx, "remove container "+id, func() error {
		for _, p := range m.pods {
			p.Containers = slices.DeleteFunc(p.Containers, func(c podworker.Container) bool { return c.ID == id })
		}
		return nil
	})
}

func (m *machine) Clean(ctx context.Context, uid types.UID) error {
	return m.act(ctx, "clean "+string(uid), func() error { return nil })
}

func (m *machine) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, exitCode int32,
	err error) {
	return nil, nil, 0, nil
}

func (m *machine) WidenPod(*corev1.Pod) error { return nil }

func (m *machine) NarrowPod(*corev1.Pod) error { return nil }

func (m *machine) ResizeContainer(context.Context, *corev1.Pod, *corev1.Container, string) error {
	return nil
}

func (m *machine) Ensure(ctx context.Context, _ *corev1.Pod, c *corev1.Container) (images.Image, error) {
	return images.Image{Ref: c.Image}, m.act(ctx, "pull", func() error { return nil })
}

// list is what a look through the runtime finds.
func (m *machine) list() []pleg.PodRef {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []pleg.PodRef
	for uid, p := range m.pods {
		if len(p.Sandboxes)+len(p.Containers) > 0 {
			out = append(out, pleg.PodRef{UID: uid, Namespace: "default", Name: m.objects[uid].Name,
				Runs: slices.ContainsFunc(p.Containers, func(c podworker.Container) bool { return c.State == podworker.Running })})
		}
	}
	return out
}

// states are the states of all that the runtime has of each pod.
func (m *machine) states() map[types.UID]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[types.UID]string, len(m.pods))
	for uid, p := range m.pods {
		for _, s := range p.Sandboxes {
			out[uid] += fmt.Sprintf("%s %t ", s.ID, s.Ready)
		}
		for _, c := range p.Containers {
			out[uid] += fmt.Sprintf("%s %s ", c.ID, c.State)
		}
	}
	return out
}

// node is a machine with an agent, and an API that keeps from the node what has no room there.
type node struct {
	*machine
	t *testing.T
	// chance says what happens.
	chance  *rand.Rand
	made    int
	statics []*corev1.Pod
	// uids are the pods that the API has, or had.
	uids []types.UID

	pods *pods.Manager
	book *pods.Book
	kill context.CancelFunc
	// ended is closed once nothing of the agent goes on.
	ended chan struct{}
}

// start starts an agent with what the one before it knew.
func (n *node) start(known []remember.Pod) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	statuses := status.New(n.api)
	n.book = pods.NewBook(known, nil)
	cfg := pods.Config{
		Runtime: n.machine, Images: n.machine, Devices: devices.New(devices.Config{Dir: n.t.TempDir(), Clock: clock.RealClock{}}),
		Claims: hollow.NoClaims{}, Volumes: &podstest.Volumes{}, Prober: podstest.NewProber(), Statuses: statuses,
		Events: events.Recorder{EventRecorder: n.api}, Clock: clock.RealClock{}, StaticPods: true, Book: n.book,
		HostIPs: func() []string { return []string{"192.0.2.1"} },
		Env:     func(context.Context, *corev1.Pod, *corev1.Container, []string) ([]env.Var, error) { return nil, nil },
	}
	twoCPUs(&cfg)
	p := pods.New(ctx, cfg)
	p.Recall(known)
	n.pods, n.kill, n.ended = p, cancel, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { statuses.Run(ctx) })
	wg.Go(func() { p.Wait(ctx) })
	wg.Go(func() {
		last := map[types.UID]string{}
		for ctx.Err() == nil {
			list, now := n.list(), n.states()
			time.Sleep(n.lag() / 4) // it is old when it is heard of
			if ctx.Err() == nil {
				for uid, is := range now {
					if is != last[uid] {
						p.RuntimeChanged(uid)
					}
				}
				for uid := range last {
					if _, still := now[uid]; !still {
						p.RuntimeChanged(uid)
					}
				}
				p.RuntimeListed(list)
			}
			last = now
			time.Sleep(time.Second)
		}
	})
	go func() {
		wg.Wait()
		close(n.ended)
	}()
	p.SetStatics(n.statics)
	n.api.Watch(p)
}

// restart kills the agent and starts it again, with what was kept on disk.
func (n *node) restart() {
	n.api.Watch(nil)
	n.kill()
	<-n.ended
	n.start(n.book.List())
}

// free is how much CPU the API thinks the node has free.
func (n *node) free() int64 {
	free := int64(2000)
	static := slices.Clone(n.statics) // their mirrors are in the API, and stay as long as they do
	n.mu.Lock()
	for uid, p := range n.machine.pods {
		if len(uid) == 32 && len(p.Sandboxes)+len(p.Containers) > 0 {
			static = append(static, n.objects[uid])
		}
	}
	n.mu.Unlock()
	if len(static) > 0 {
		requests := podfacts.Requests(static[0])
		free -= requests.Cpu().MilliValue()
	}
	for _, uid := range n.uids {
		if pod := n.api.Get(uid); pod != nil && !podfacts.IsTerminal(pod) {
			requests := podfacts.Requests(pod)
			free -= requests.Cpu().MilliValue()
		}
	}
	return free
}

func (n *node) create() {
	cpu := int64(300 * (1 + n.chance.IntN(4)))
	if cpu > n.free() {
		return
	}
	n.made++
	pod := asking(podstest.Pod(fmt.Sprintf("p%d", n.made)), fmt.Sprintf("%dm", cpu))
	if n.chance.IntN(3) == 0 {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	n.say("create %s, %dm", pod.Name, cpu)
	n.uids = append(n.uids, pod.UID)
	n.api.Create(pod)
}

// some is a pod that the API has; nil if there is none.
func (n *node) some() *corev1.Pod {
	var all []*corev1.Pod
	for _, uid := range n.uids {
		if pod := n.api.Get(uid); pod != nil {
			all = append(all, pod)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[n.chance.IntN(len(all))]
}

// happen has something happen.
func (n *node) happen(withStatics bool) {
	pod := n.some()
	switch what := n.chance.IntN(24); {
	case what < 8 || what > 20:
		n.create()
	case what < 9 && pod != nil && pod.DeletionTimestamp == nil:
		n.say("delete %s", pod.Name)
		n.api.MarkDeleted(pod.UID, int64(1+n.chance.IntN(30)))
	case what < 10 && pod != nil:
		n.say("drop %s", pod.Name)
		n.api.Drop(pod.UID)
	case what < 12 && pod != nil:
		n.say("end %s", pod.Name)
		n.pods.Terminate(pod.UID, podworker.Termination{Reason: "Evicted", Grace: int64(1 + n.chance.IntN(10))})
	case what < 15 && pod != nil:
		n.mu.Lock()
		n.note("%s exits", pod.Name)
		n.exit(fmt.Sprintf("%s/main/%d", pod.UID, n.chance.IntN(2)), int32(n.chance.IntN(2)))
		n.mu.Unlock()
	case what == 15:
		n.say("discard")
		n.pods.DiscardEnded()
	case what == 16 || what == 20:
		away := n.chance.IntN(3) == 0
		n.say("the API is away: %t", away)
		n.api.Leave(away)
	case what == 17:
		n.say("the agent is killed")
		n.restart()
	case what < 20 && withStatics:
		n.statics = nil
		if n.chance.IntN(2) == 0 {
			n.statics = []*corev1.Pod{asking(podstest.StaticPod("s", fmt.Sprint(1+n.chance.IntN(2))), "1200m")}
		}
		n.say("%d static pods", len(n.statics))
		n.pods.SetStatics(n.statics)
	}
}

// TestWhatIsUnderWay has a node that is slow, and fails at times, be asked for much at once. At no time more runs on it
// than it has room for, nothing runs that was reported to have ended, nobody is refused who has room, all come to run
// once it is calm, and in the end nothing is left.
func TestWhatIsUnderWay(t *testing.T) {
	const runs = 10
	first := uint64(time.Now().UnixNano())
	for i := range uint64(runs) {
		seed, withStatics := first+i, i%2 == 0
		t.Run(fmt.Sprintf("seed %d, static pods: %t", seed, withStatics), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { underWay(t, seed, withStatics) })
		})
	}
}

func underWay(t *testing.T, seed uint64, withStatics bool) {
	api := podstest.NewAPI()
	m := &machine{api: api, rand: rand.New(rand.NewPCG(seed, 1)), pods: map[types.UID]*podworker.Runtime{},
		objects: map[types.UID]*corev1.Pod{}}
	n := &node{machine: m, t: t, chance: rand.New(rand.NewPCG(seed, 2))}
	n.start(nil)
	for range 300 {
		n.happen(withStatics)
		time.Sleep(time.Duration(n.chance.Int64N(int64(8 * time.Second))))
		if !withStatics {
			n.checkRefused()
		}
	}
	n.say("all is calm")
	api.Leave(false)
	for range 200 {
		time.Sleep(10 * time.Second)
		if n.unsettled() == "" {
			break
		}
	}
	if what := n.unsettled(); what != "" {
		n.mu.Lock()
		n.fault("%s", what)
		n.mu.Unlock()
	}
	n.say("all goes")
	n.statics = nil
	n.pods.SetStatics(nil)
	for _, uid := range n.uids {
		if pod := api.Get(uid); pod != nil {
			api.MarkDeleted(uid, 1)
		}
	}
	for range 100 {
		time.Sleep(10 * time.Second)
		if n.some() == nil && len(n.list()) == 0 {
			break
		}
	}
	if pod := n.some(); pod != nil {
		n.faults = append(n.faults, pod.Name+" does not go")
	}
	if left := n.list(); len(left) > 0 {
		n.faults = append(n.faults, fmt.Sprintf("left are %v", left))
	}
	api.Watch(nil)
	n.kill()
	<-n.ended
	m.going.Wait()
	if len(m.faults) > 0 {
		t.Errorf("%s\nafter\n%s", strings.Join(m.faults, "\n"), strings.Join(m.log, "\n"))
	}
}

// unsettled says which pod is not yet as the API wants it, empty if all are.
func (n *node) unsettled() string {
	for _, uid := range n.uids {
		pod := n.api.Get(uid)
		if pod == nil || podfacts.IsTerminal(pod) {
			continue
		}
		runs := slices.ContainsFunc(n.list(), func(ref pleg.PodRef) bool { return ref.UID == uid && ref.Runs })
		if pod.DeletionTimestamp != nil || !podstest.IsReady(pod) || !runs {
			return fmt.Sprintf("%s is %s, and runs: %t", pod.Name, pod.Status.Phase, runs)
		}
	}
	return ""
}

// checkRefused notes pods that were refused though the API saw to it that they have room.
func (n *node) checkRefused() {
	for _, uid := range n.uids {
		pod := n.api.Get(uid)
		if pod == nil || !strings.HasPrefix(pod.Status.Reason, "OutOf") {
			continue
		}
		n.mu.Lock()
		if fault := pod.Name + " was refused: " + pod.Status.Message; !slices.Contains(n.faults, fault) {
			n.fault("%s", fault)
		}
		n.mu.Unlock()
	}
}
