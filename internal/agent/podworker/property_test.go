package podworker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// chaos drives a world with actions that end late, in any order, or never because the agent is killed. Meanwhile what
// they are about changes, and the runtime is already half through with them.
type chaos struct {
	*world
	underWay []begun
	log      []string
	// ended is how the pod was reported to have ended, for which the node gave its room away; empty while the pod has
	// it.
	ended string
	// images are those that were made present for the containers' next starts.
	images map[string]string
}

// begun is an action under way, with the pod as it was when it began, and the image that it starts.
type begun struct {
	Action
	pod   *corev1.Pod
	image string
	// made says that the runtime has the container already, which is being started.
	made bool
}

func (c *chaos) note(format string, args ...any) { c.log = append(c.log, fmt.Sprintf(format, args...)) }

func genPod(t *rapid.T) *corev1.Pod {
	s := podSpec{
		restart: rapid.SampledFrom([]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure,
			corev1.RestartPolicyNever}).Draw(t, "restart"),
		containers:  []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(t, "containers")],
		init:        []string{"i", "s"}[:rapid.IntRange(0, 2).Draw(t, "init")],
		hostNetwork: rapid.Bool().Draw(t, "hostNetwork"),
	}
	if len(s.init) == 2 {
		s.sidecar = s.init[1:]
	}
	if rapid.Bool().Draw(t, "startup") {
		s.startup = []string{"a"}
	}
	if rapid.IntRange(0, 3).Draw(t, "deadline") == 0 {
		s.activeDeadlineSec = 30
	}
	pod := s.pod()
	if rapid.Bool().Draw(t, "claims") {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	}
	if rapid.Bool().Draw(t, "hostPort") {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	return pod
}

func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &chaos{world: newWorld(genPod(t)), images: map[string]string{}}
		defer func() {
			if t.Failed() {
				for _, line := range c.log {
					t.Log(line)
				}
			}
		}()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c.event(t)
			c.check(t)
		}
		c.drive(t)
	})
}

// event is one thing that happens.
func (c *chaos) event(t *rapid.T) {
	event := rapid.SampledFrom([]string{"decide", "decide", "decide", "end", "end", "end", "fail", "exit", "exit", "advance",
		"sandbox", "probe", "delete", "gone", "kill agent", "change image", "unknown", "make", "terminate", "discard", "away",
		"back", "clock", "late"}).Draw(t, "event")
	switch event {
	case "decide":
		c.decideAndBegin(t)
	case "end":
		c.end(t, false)
	case "fail":
		c.end(t, true)
	case "exit":
		if alive := c.alive(); len(alive) > 0 {
			id := rapid.SampledFrom(alive).Draw(t, "which")
			code := rapid.SampledFrom([]int32{0, 1}).Draw(t, "code")
			c.note("%s exits %d", id, code)
			c.exit(id, code)
		}
	case "advance":
		c.now = c.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, 11 * time.Minute}).Draw(t, "by"))
	case "sandbox":
		if s := c.runtime.sandbox(); s != nil {
			c.note("sandbox %s dies", s.ID)
			s.Ready = false
		}
	case "probe":
		name := rapid.SampledFrom([]string{"a", "b", "s"}).Draw(t, "container")
		state := rapid.IntRange(0, 7).Draw(t, "state")
		c.setProbe(name, func(p *Probe) {
			p.Known, p.Started, p.Ready, p.LivenessFailed = true, state&1 > 0, state&2 > 0, state&4 > 0
		})
	case "delete":
		if c.pod.DeletionTimestamp == nil && rapid.IntRange(0, 3).Draw(t, "really") == 0 {
			c.note("deleted")
			c.delete(rapid.Int64Range(0, 30).Draw(t, "grace"))
		}
	case "gone":
		if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
			c.note("gone")
			c.gone = true
		}
	case "kill agent":
		c.killAgent(t)
	case "change image":
		c.pod = c.pod.DeepCopy()
		c.pod.Spec.Containers[0].Image = rapid.SampledFrom([]string{"img", "img2"}).Draw(t, "image")
	case "unknown":
		if alive := c.alive(); len(alive) > 0 {
			c.setState(rapid.SampledFrom(alive).Draw(t, "which"), Unknown)
		}
	case "make":
		c.make()
	default:
		c.more(t, event)
	}
	c.tell()
}

// more is what happens to the pod as a whole, and to what is around it.
func (c *chaos) more(t *rapid.T, event string) {
	switch event {
	case "terminate":
		if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
			c.note("the node ends the pod")
			c.memory.Terminate(Termination{Reason: "Evicted", Grace: rapid.Int64Range(1, 30).Draw(t, "grace")})
		}
	case "discard":
		if c.ended != "" {
			c.note("what it left is to go")
			c.memory.Discard()
		}
	case "away", "back":
		c.note("the API is %s", event)
		c.away = event == "away"
	case "clock":
		c.now = c.now.Add(-time.Hour)
	case "late":
		c.late()
	}
}

// tell reports the pod's status, as a worker does, which gives the room back once it ended.
func (c *chaos) tell() {
	c.report()
	if !c.gone && ended(&c.status) && c.ended == "" {
		c.ended = c.how()
		c.note("it is reported %s", c.ended)
	}
}

// how is how the pod is reported to be.
func (c *chaos) how() string {
	return strings.TrimSpace(string(c.status.Phase) + " " + c.status.Reason)
}

// make has the runtime make the container that is being started: others see it before whoever starts it hears of it.
func (c *chaos) make() {
	for i := range c.underWay {
		b := &c.underWay[i]
		switch {
		case b.Kind != StartContainer:
		case !b.made:
			b.made = true
			c.note("made: %s", b.Action)
			c.createOf(b.pod, b.Action, Created)
		default:
			c.note("runs: %s", b.Action)
			c.setCreated(b.Action)
		}
	}
}

// late has a start come through that nobody waits for any more: it was answered with an error, or its agent was killed.
func (c *chaos) late() {
	for i := range c.runtime.Containers {
		m := &c.runtime.Containers[i]
		in := slices.IndexFunc(c.runtime.Sandboxes, func(s Sandbox) bool { return s.ID == m.SandboxID && s.Ready })
		others := slices.ContainsFunc(c.runtime.Containers, func(o Container) bool { return o.Name == m.Name && o.alive() }) ||
			slices.ContainsFunc(c.underWay, func(b begun) bool { return b.Container == m.Name })
		if m.State == Created && in >= 0 && !others && c.runtime.newest(m.Name) == m {
			c.note("%s starts late", m.ID)
			m.State, m.StartedAt = Running, c.now
		}
	}
}

// setCreated starts the container of an action that was made, if its sandbox still is.
func (c *chaos) setCreated(a Action) {
	for i := range c.runtime.Containers {
		if m := &c.runtime.Containers[i]; m.Name == a.Container && m.Attempt == a.Attempt && m.State == Created {
			m.State, m.StartedAt = Running, c.now
		}
	}
}

// do is what comes of an action that was begun, in the runtime.
func (c *chaos) do(b begun) Outcome {
	switch {
	case b.Kind == StartContainer && b.made:
		c.setCreated(b.Action)
		return Outcome{}
	case b.Kind == StartContainer:
		c.createOf(b.pod, b.Action, Running)
		return Outcome{}
	default:
		return c.perform(b.Action)
	}
}

// finish ends an action under way.
func (c *chaos) finish(b begun, o Outcome) {
	if b.Kind == PullImage && !o.Failed() {
		c.images[b.Container] = podfacts.Container(b.pod, b.Container).Image
	}
	c.memory.Done(b.Action, o, c.now)
}

func (c *chaos) setState(id string, s ContainerState) {
	for i := range c.runtime.Containers {
		if c.runtime.Containers[i].ID == id {
			c.runtime.Containers[i].State = s
		}
	}
}

func (c *chaos) alive() []string {
	var ids []string
	for i := range c.runtime.Containers {
		if c.runtime.Containers[i].alive() {
			ids = append(ids, c.runtime.Containers[i].ID)
		}
	}
	return ids
}

func (c *chaos) decideAndBegin(t *rapid.T) {
	plan := c.decide()
	serial := 0
	for _, a := range plan.Actions {
		c.note("%s: %s", c.now.Sub(epoch), a)
		if a.Kind.serial() {
			serial++
		}
		c.checkAction(t, a)
		c.memory.Begin(a, c.now)
		if a.Kind == Announce {
			c.memory.Done(a, Outcome{}, c.now)
			continue
		}
		c.underWay = append(c.underWay, begun{Action: a, pod: c.pod, image: c.images[a.Container]})
	}
	busy := 0
	for _, a := range c.underWay {
		if a.Kind.serial() {
			busy++
		}
	}
	if serial > 0 && busy > serial {
		t.Fatalf("a serial action was begun while another was under way")
	}
}

// checkAction fails on what must never be decided.
func (c *chaos) checkAction(t *rapid.T, a Action) {
	if a.Kind == StartContainer {
		for _, other := range c.runtime.Containers {
			if other.Name == a.Container && other.alive() {
				t.Fatalf("%s, while %s is %s", a, other.ID, other.State)
			}
		}
		if all := c.started[a.Container]; len(all) > 0 && a.Attempt <= all[len(all)-1] {
			t.Fatalf("%s, after attempt %d", a, all[len(all)-1])
		}
		if c.gone || c.pod.DeletionTimestamp != nil {
			t.Fatalf("%s, though the pod is being deleted", a)
		}
		if want := podfacts.Container(c.pod, a.Container).Image; c.images[a.Container] != want {
			t.Fatalf("%s of image %s, though the image that was pulled is %s", a, want, c.images[a.Container])
		}
	}
	if c.ended != "" && slices.Contains([]ActionKind{SetUpVolumes, CreateSandbox, PullImage, StartContainer}, a.Kind) {
		t.Fatalf("%s, though the pod was reported %s", a, c.ended)
	}
	if a.Kind == Forget && len(c.underWay) > 0 {
		t.Fatalf("Forget, while %s is under way", c.underWay[0].Action)
	}
	if a.Kind == RemoveContainer {
		for _, other := range c.runtime.Containers {
			if other.ID == a.ContainerID && other.alive() {
				t.Fatalf("%s, while it is %s", a, other.State)
			}
		}
	}
	if a.Kind == Finish && (len(c.runtime.Containers) > 0 || len(c.runtime.Sandboxes) > 0) {
		t.Fatalf("Finish, while the runtime has %s", c.text())
	}
}

// end ends one action under way: any kill, or the first of the serial ones.
func (c *chaos) end(t *rapid.T, fail bool) {
	if len(c.underWay) == 0 {
		return
	}
	i := rapid.IntRange(0, len(c.underWay)-1).Draw(t, "action")
	if c.underWay[i].Kind.serial() {
		for j, a := range c.underWay {
			if a.Kind.serial() {
				i = j
				break
			}
		}
	}
	a := c.underWay[i]
	c.underWay = append(c.underWay[:i:i], c.underWay[i+1:]...)
	o := Outcome{}
	switch {
	case !fail:
		o = c.do(a)
	case rapid.Bool().Draw(t, "though done"):
		if !a.made || rapid.Bool().Draw(t, "quite") {
			c.do(a)
		}
		o = Outcome{Reason: "Failed", Message: "deadline exceeded"}
	case a.Kind == PullImage:
		o = Outcome{Reason: ReasonErrImagePull, Message: "unreachable"}
	case a.Kind == StartContainer && rapid.Bool().Draw(t, "hook"):
		// The container was started and its hook failed.
		c.do(a)
		o = Outcome{Reason: ReasonPostStartHookError, Message: "hook"}
	default:
		o = Outcome{Reason: "Failed", Message: "chaos"}
	}
	c.note("ends %t: %s", !o.Failed(), a.Action)
	c.finish(a, o)
}

// killAgent ends the agent. Each action under way may have been done or not. What runs now must run on.
func (c *chaos) killAgent(t *rapid.T) {
	c.note("the agent is killed")
	for _, a := range c.underWay {
		if rapid.Bool().Draw(t, "done") {
			c.note("still done: %s", a.Action)
			c.do(a)
		}
	}
	c.underWay = nil
	reported := c.status
	c.restart()
	switch {
	case c.ended == "" || ended(&c.pod.Status):
	case rapid.Bool().Draw(t, "remembered"):
		c.memory.Recall(&reported)
	default: // Nobody was told: it is as if it had not ended.
		c.ended = ""
	}
}

// check fails on what must never be.
func (c *chaos) check(t *rapid.T) {
	running := map[string]bool{}
	for _, name := range c.running() {
		if running[name] {
			t.Fatalf("two containers %s run", name)
		}
		running[name] = true
	}
	for name, attempts := range c.started {
		for i := 1; i < len(attempts); i++ {
			if attempts[i] <= attempts[i-1] {
				t.Fatalf("container %s was started as %v", name, attempts)
			}
		}
	}
	if c.ended != "" {
		c.checkEnded(t)
	}
	c.checkStatus(t)
}

// checkEnded fails if a pod that was reported to have ended has something that others may have been given since.
func (c *chaos) checkEnded(t *rapid.T) {
	if alive := c.alive(); len(alive) > 0 {
		t.Fatalf("the pod was reported %s, and %v run", c.ended, alive)
	}
	for _, b := range c.underWay {
		if b.Kind == StartContainer {
			t.Fatalf("the pod was reported %s, and %s is under way", c.ended, b.Action)
		}
	}
	if how := c.how(); how != "" && how != c.ended {
		t.Fatalf("the pod was reported %s, and then %s", c.ended, how)
	}
	up := slices.ContainsFunc(c.runtime.Sandboxes, func(s Sandbox) bool { return s.Ready })
	if up && !c.pod.Spec.HostNetwork && len(c.pod.Spec.Containers[0].Ports) > 0 {
		t.Fatalf("the pod was reported %s, and its sandbox has its port: %s", c.ended, c.text())
	}
	if c.claimed && len(c.pod.Spec.ResourceClaims) > 0 {
		t.Fatalf("the pod was reported %s, and drivers have not undone what they did for its claims", c.ended)
	}
}

func (c *chaos) checkStatus(t *rapid.T) {
	for _, s := range c.status.ContainerStatuses {
		if s.Ready && s.State.Running == nil {
			t.Fatalf("container %s is ready and does not run", s.Name)
		}
		n := 0
		for _, set := range []bool{s.State.Running != nil, s.State.Waiting != nil, s.State.Terminated != nil} {
			if set {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("container %s has %d states", s.Name, n)
		}
	}
	if ready := findCondition(c.status.Conditions, corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue &&
		c.status.Phase != corev1.PodRunning {
		t.Fatalf("the pod is ready and %s", c.status.Phase)
	}
}

// drive lets everything succeed from now on: a pod that should run comes to run, one that is deleted goes.
func (c *chaos) drive(t *rapid.T) {
	c.probes, c.away = nil, false
	for range 400 {
		for len(c.underWay) > 0 {
			a := c.underWay[0]
			c.underWay = c.underWay[1:]
			c.finish(a, c.do(a))
		}
		c.tell()
		for _, s := range []string{"i"} {
			if last := c.runtime.newest(s); last != nil && last.State == Running {
				c.exit(last.ID, 0)
			}
		}
		for _, name := range []string{"a", "s"} {
			c.setProbe(name, func(p *Probe) { p.Known, p.Started, p.Ready, p.LivenessFailed = true, true, true, false })
		}
		c.decideAndBegin(t)
		c.check(t)
		if c.memory.Forgotten() {
			break
		}
		if len(c.underWay) == 0 {
			plan := c.decide()
			if plan.Deadline.IsZero() && len(plan.Actions) == 0 {
				break
			}
			if !plan.Deadline.IsZero() && plan.Deadline.After(c.now) {
				c.now = plan.Deadline
			}
		}
	}
	c.tell()
	switch {
	case c.gone || c.pod.DeletionTimestamp != nil:
		if !c.memory.Forgotten() || len(c.runtime.Containers)+len(c.runtime.Sandboxes) > 0 || len(c.running()) > 0 {
			t.Fatalf("a deleted pod did not end: the node has %s", c.text())
		}
	case c.status.Phase == corev1.PodFailed || c.status.Phase == corev1.PodSucceeded:
		if len(c.alive()) > 0 {
			t.Fatalf("the pod is %s, and %v run", c.status.Phase, c.alive())
		}
	default:
		c.checkRuns(t)
	}
}

// checkRuns fails unless every container runs that should, and unless an agent that starts now leaves them alone.
func (c *chaos) checkRuns(t *rapid.T) {
	for i := range c.pod.Spec.Containers {
		spec := &c.pod.Spec.Containers[i]
		last := c.runtime.newest(spec.Name)
		if last == nil || (last.State != Running && shouldRestart(c.pod, spec, last)) {
			t.Fatalf("container %s does not run in the end: %s", spec.Name, c.text())
		}
	}
	c.restart()
	for range 10 {
		plan := c.decide()
		for _, a := range plan.Actions {
			switch a.Kind {
			case CreateSandbox, PullImage, StartContainer, KillContainer, StopSandbox:
				t.Fatalf("an agent that starts decides: %s", a)
			}
			c.memory.Begin(a, c.now)
			c.memory.Done(a, c.perform(a), c.now)
		}
	}
}

func BenchmarkDecideIdle(b *testing.B) {
	w := newWorld(podSpec{containers: []string{"a"}}.pod())
	for range 10 {
		w.step()
	}
	in := w.input()
	b.ReportAllocs()
	for b.Loop() {
		Decide(in)
	}
}

func BenchmarkStatus(b *testing.B) {
	w := newWorld(podSpec{containers: []string{"a"}}.pod())
	for range 10 {
		w.step()
	}
	in, ips := w.input(), []string{"192.0.2.1"}
	b.ReportAllocs()
	for b.Loop() {
		Status(in, &w.status, ips)
	}
}

func BenchmarkStartPod(b *testing.B) {
	pod := podSpec{containers: []string{"a"}}.pod()
	b.ReportAllocs()
	for b.Loop() {
		w := world{now: epoch, pod: pod, started: map[string][]uint32{}}
		for {
			plan := w.decide()
			if len(plan.Actions) == 0 {
				break
			}
			for _, a := range plan.Actions {
				w.memory.Begin(a, w.now)
				w.memory.Done(a, w.perform(a), w.now)
			}
		}
	}
}
