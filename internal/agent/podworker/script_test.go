package podworker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestScripts runs the scripts in testdata/scripts. Their commands:
//
//	pod [restart=P] [init=(a,b)] [sidecar=(b)] containers=(x,y) [startup=(x)] [readiness=(x)] [grace=N] [claims] [hostport] [hostnetwork]   a new pod on a new node
//	step                          one decision, carried out
//	run                           steps until nothing is left to do now
//	begin                         one decision, begun and not ended; its actions stay under way
//	end [KIND]                    ends the actions under way (of that kind)
//	fail kind=K reason=R [message=M]   the next action of kind K fails
//	exit NAME code=N              a container exits
//	twin NAME attempt=N           somebody else started a container of that name
//	away, back                    nobody reaches the API from now on, or everybody again
//	lost                          kills and stops that end from now on leave all as it was, as the runtime sees it
//	advance DURATION              time passes
//	probe NAME [known] [started] [ready] [failed]   what the probes say now
//	made NAME attempt=N           a container is made, and not started
//	sandbox-dies                  the sandbox stops, its containers do not
//	image NAME IMAGE              the spec's image changes
//	resize NAME MEMORY [restart]  a container asks for so much memory; restart says that it must be restarted for it
//	pending REASON                the node does not give the pod what it asks for
//	unrecorded NAME               the runtime does not say what CPU and memory a container was made with
//	forget NAME                   the runtime loses what it had of a container
//	debug NAME                    a container is added to the running pod
//	delete [grace=N]              the API begins to delete the pod
//	gone                          the API no longer has the pod
//	reject reason=R message=M     the node refuses the pod
//	terminate reason=R message=M grace=N   the node ends the pod
//	discard                       what an ended pod left is to go
//	restart-agent [remembered]    the worker forgets everything, but for how the pod ended if that is remembered
//	status                        prints the pod's status
//	containers                    prints what the runtime holds
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

type script struct {
	w        *world
	underWay []Action
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	if d.Cmd == "pod" {
		s.w, s.underWay = newWorld(parsePod(t, d)), nil
		return ""
	}
	w := s.w
	switch d.Cmd {
	case "step":
		return planText(w, w.step())
	case "run":
		return s.runAll(t)
	case "begin":
		plan := w.decide()
		for _, a := range plan.Actions {
			w.memory.Begin(a, w.now)
			s.underWay = append(s.underWay, a)
		}
		w.report()
		return planText(w, plan)
	case "end":
		return s.end(d)
	case "status":
		return statusText(&w.status)
	case "containers":
		return w.text()
	default:
		s.change(t, d)
		return ""
	}
}

// change does the commands that print nothing.
func (s *script) change(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	w := s.w
	switch d.Cmd {
	case "fail":
		var kind, reason, message string
		d.ScanArgs(t, "kind", &kind)
		d.ScanArgs(t, "reason", &reason)
		d.MaybeScanArgs(t, "message", &message)
		w.failNext[kindOf(t, kind)] = Outcome{Reason: reason, Message: message}
	case "exit":
		var code int32
		d.ScanArgs(t, "code", &code)
		w.exit(w.runtime.newest(d.CmdArgs[0].Key).ID, code)
	case "lost":
		w.killsLost = true
	case "away", "back":
		w.away = d.Cmd == "away"
	case "twin", "made":
		a := Action{Container: d.CmdArgs[0].Key, SandboxID: w.runtime.sandbox().ID}
		d.ScanArgs(t, "attempt", &a.Attempt)
		w.create(a, map[string]ContainerState{"twin": Running, "made": Created}[d.Cmd])
	case "advance":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(by)
	case "probe":
		w.setProbe(d.CmdArgs[0].Key, func(p *Probe) {
			p.Known, p.Started, p.Ready, p.LivenessFailed = d.HasArg("known"), d.HasArg("started"), d.HasArg("ready"), d.HasArg("failed")
		})
	case "sandbox-dies":
		w.runtime.sandbox().Ready = false
	case "image":
		w.pod = w.pod.DeepCopy()
		c, _ := findContainer(w.pod, d.CmdArgs[0].Key)
		c.Image = d.CmdArgs[1].Key
	case "resize":
		w.pod = w.pod.DeepCopy()
		c, _ := findContainer(w.pod, d.CmdArgs[0].Key)
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(d.CmdArgs[1].Key)}
		c.ResizePolicy = nil
		if d.HasArg("restart") {
			c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
		}
	case "unrecorded":
		w.runtime.newest(d.CmdArgs[0].Key).Resources = nil
	case "pending":
		w.pending = Pending{}
		if len(d.CmdArgs) > 0 {
			w.pending.Reason = d.CmdArgs[0].Key
		}
	case "forget":
		w.runtime.Containers = slices.DeleteFunc(w.runtime.Containers, func(c Container) bool { return c.Name == d.CmdArgs[0].Key })
	case "debug":
		w.pod = w.pod.DeepCopy()
		w.pod.Spec.EphemeralContainers = append(w.pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: d.CmdArgs[0].Key, Image: "img"}})
	case "delete":
		grace := int64(30)
		d.MaybeScanArgs(t, "grace", &grace)
		w.delete(grace)
	case "gone":
		w.gone = true
	case "reject":
		var r Rejection
		d.ScanArgs(t, "reason", &r.Reason)
		d.ScanArgs(t, "message", &r.Message)
		w.memory.Reject(r)
	case "terminate":
		var r Termination
		d.ScanArgs(t, "reason", &r.Reason)
		d.ScanArgs(t, "message", &r.Message)
		d.ScanArgs(t, "grace", &r.Grace)
		w.memory.Terminate(r)
	case "discard":
		w.memory.Discard()
	case "restart-agent":
		was := w.status
		w.restart()
		if d.HasArg("remembered") {
			w.memory.Recall(&was)
		}
		s.underWay = nil
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
}

func (s *script) runAll(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for range 50 {
		plan := s.w.step()
		if len(plan.Actions) == 0 {
			b.WriteString(planText(s.w, plan))
			return b.String()
		}
		for _, a := range plan.Actions {
			fmt.Fprintln(&b, a)
		}
	}
	t.Fatalf("the worker never rests:\n%s", b.String())
	return ""
}

func (s *script) end(d *datadriven.TestData) string {
	kept := s.underWay[:0:0]
	for _, a := range s.underWay {
		if len(d.CmdArgs) > 0 && a.Kind.String() != d.CmdArgs[0].Key {
			kept = append(kept, a)
			continue
		}
		s.w.memory.Done(a, s.w.perform(a), s.w.now)
	}
	s.underWay = kept
	s.w.report()
	return ""
}

func kindOf(t *testing.T, name string) ActionKind {
	t.Helper()
	for i, n := range kindNames {
		if n == name {
			return ActionKind(i)
		}
	}
	t.Fatalf("no kind of action is called %s", name)
	return 0
}

func parsePod(t *testing.T, d *datadriven.TestData) *corev1.Pod {
	t.Helper()
	var s podSpec
	var restart string
	d.MaybeScanArgs(t, "restart", &restart)
	s.restart = corev1.RestartPolicy(restart)
	d.MaybeScanArgs(t, "grace", &s.grace)
	d.MaybeScanArgs(t, "deadline", &s.activeDeadlineSec)
	list := func(key string) []string {
		for _, a := range d.CmdArgs {
			if a.Key == key {
				return a.Vals
			}
		}
		return nil
	}
	s.init, s.sidecar, s.containers = list("init"), list("sidecar"), list("containers")
	s.startup, s.readiness = list("startup"), list("readiness")
	s.hostNetwork = d.HasArg("hostnetwork")
	pod := s.pod()
	if d.HasArg("claims") {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	}
	if d.HasArg("hostport") {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	return pod
}

func planText(w *world, p Plan) string {
	var b strings.Builder
	for _, a := range p.Actions {
		fmt.Fprintln(&b, a)
	}
	if p.Abandon {
		fmt.Fprintln(&b, "abandon what is under way")
	}
	if p.Deadline.IsZero() {
		fmt.Fprintln(&b, "then wait")
	} else {
		fmt.Fprintln(&b, "then wait for", p.Deadline.Sub(w.now))
	}
	return b.String()
}

func statusText(s *corev1.PodStatus) string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(string(s.Phase)+" "+s.Reason+" "+s.Message) + "\n")
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			containerText(&b, &list[i])
		}
	}
	for _, c := range s.Conditions {
		line := fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
		fmt.Fprintf(&b, "  %s\n", strings.Join(strings.Fields(line), " "))
	}
	return b.String()
}

func containerText(b *strings.Builder, s *corev1.ContainerStatus) {
	fmt.Fprintf(b, "  %s: %s", s.Name, stateText(&s.State))
	if s.LastTerminationState.Terminated != nil {
		fmt.Fprintf(b, ", before: %s", stateText(&s.LastTerminationState))
	}
	if m, ok := s.AllocatedResources[corev1.ResourceMemory]; ok {
		has := s.Resources.Requests[corev1.ResourceMemory]
		fmt.Fprintf(b, ", given %s, has %s", m.String(), has.String())
	}
	if s.RestartCount > 0 {
		b.WriteString(", restarts " + strconv.Itoa(int(s.RestartCount)))
	}
	if s.Ready {
		b.WriteString(", ready")
	}
	if s.Started != nil && *s.Started {
		b.WriteString(", started")
	}
	b.WriteString("\n")
}

func stateText(s *corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("%s(%d)", s.Terminated.Reason, s.Terminated.ExitCode)
	case s.Waiting != nil:
		return strings.TrimSpace(s.Waiting.Reason + " " + s.Waiting.Message)
	default:
		return "nothing"
	}
}

func (w *world) text() string {
	var b strings.Builder
	for _, s := range w.runtime.Sandboxes {
		fmt.Fprintf(&b, "%s attempt=%d ready=%t\n", s.ID, s.Attempt, s.Ready)
	}
	for _, c := range w.runtime.Containers {
		fmt.Fprintf(&b, "%s %s in %s\n", c.ID, c.State, c.SandboxID)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}
