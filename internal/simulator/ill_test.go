package simulator

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/everynode/everynode/internal/simulator/illness"
)

// plan reads a file of faults.
func plan(t *testing.T, text string) *illness.Plan {
	t.Helper()
	p, err := illness.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func bad(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{illness.Annotation: value} }
}

// annotate gives a node a fault, or takes it away with an empty value.
func (c *cluster) annotate(name, value string) {
	c.t.Helper()
	n := c.node(name).DeepCopy()
	n.Annotations = map[string]string{}
	if value != "" {
		n.Annotations[illness.Annotation] = value
	}
	if _, err := c.client.CoreV1().Nodes().Update(c.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.pass(time.Second)
}

func condition(n *corev1.Node, t corev1.NodeConditionType) corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
	return n.Status.Conditions[i]
}

func (c *cluster) silentFor(name string) time.Duration { return time.Since(c.renewed(name)) }

func (c *cluster) events(recorder *record.FakeRecorder) (got []string) {
	for len(recorder.Events) > 0 {
		got = append(got, <-recorder.Events)
	}
	return got
}

func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := record.NewFakeRecorder(1000)
		c := start(t, Config{Nodes: 1, Events: recorder, OnlyWarnings: true}, nil)
		c.bind(newPod("p", "demo", bad("{crash: {after: 2s, exitCode: 3, message: no configuration}}")), "sim-0001")
		if p := c.pod("p"); !ready(p) {
			t.Errorf("the pod is %+v before its container ends, want it ready", p.Status)
		}
		c.pass(3 * time.Second)
		if s := c.pod("p").Status.ContainerStatuses[0]; s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 3 {
			t.Errorf("after the first crash the container is %+v, want it restarted at once", s)
		}
		c.pass(3 * time.Second)
		p := c.pod("p")
		s := p.Status.ContainerStatuses[0]
		last := s.LastTerminationState.Terminated
		if s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" || ready(p) || p.Status.Phase != corev1.PodRunning {
			t.Fatalf("after the second crash the pod is %+v, want CrashLoopBackOff, running and not ready", p.Status)
		}
		if last == nil || last.ExitCode != 3 || last.Reason != "Error" || last.Message != "no configuration" || last.FinishedAt.Sub(last.StartedAt.Time) != 2*time.Second {
			t.Errorf("the last state is %+v, want 2 s, exit code 3 and the last words", last)
		}
		if got := c.events(recorder); !slices.Equal(got, []string{"Warning BackOff Back-off restarting failed container main in pod p_default(uid-p)"}) {
			t.Errorf("events are %q", got)
		}
		c.pass(3 * time.Minute)
		if n := c.pod("p").Status.ContainerStatuses[0].RestartCount; n < 4 || n > 6 {
			t.Errorf("the container was restarted %d times in three minutes, want five or so: the pause doubles", n)
		}
		c.mark("p")
		if _, err := c.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err == nil {
			t.Error("a pod that crashes cannot be deleted")
		}
	})
}

func TestWorkThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1}, nil)
		policy := func(r corev1.RestartPolicy) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Spec.RestartPolicy = r }
		}
		c.bind(newPod("daemon", "demo"), "sim-0001")
		c.bind(newPod("once", "demo", policy(corev1.RestartPolicyNever)), "sim-0001")
		c.bind(newPod("until-well", "demo", policy(corev1.RestartPolicyOnFailure)), "sim-0001")
		c.bind(newPod("long", "demo", policy(corev1.RestartPolicyNever), bad("{slowTask: {takes: 1m}}")), "sim-0001")
		c.bind(newPod("bad", "demo", policy(corev1.RestartPolicyNever), bad("crash")), "sim-0001")
		for _, step := range []struct {
			after time.Duration
			want  map[string]corev1.PodPhase
		}{
			{500 * time.Millisecond, map[string]corev1.PodPhase{"once": "Running", "until-well": "Running", "daemon": "Running"}},
			{20 * time.Second, map[string]corev1.PodPhase{"once": "Succeeded", "until-well": "Succeeded", "long": "Running", "bad": "Failed", "daemon": "Running"}},
			{time.Minute, map[string]corev1.PodPhase{"long": "Succeeded", "daemon": "Running"}},
		} {
			c.pass(step.after)
			for name, want := range step.want {
				if got := c.pod(name).Status; got.Phase != want {
					t.Errorf("%s later %s is %s, want %s: %+v", step.after, name, got.Phase, want, got.ContainerStatuses)
				}
			}
		}
		if end := c.pod("once").Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 0 || end.Reason != "Completed" {
			t.Errorf("the work ended with %+v, want Completed", end)
		}
	})
}

func TestContainersThatDoNotBecomeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := record.NewFakeRecorder(1000)
		c := start(t, Config{Nodes: 1, Events: recorder, OnlyWarnings: true}, nil)
		probed := func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{} }
		for name, want := range map[string]struct {
			fault, reason, message, event string
			edits                         []func(*corev1.Pod)
		}{
			"memory":   {"{outOfMemory: {after: 1s}}", "CrashLoopBackOff", "restarting failed container=main", "BackOff", nil},
			"absent":   {"{pullError: {message: not found}}", "ImagePullBackOff", "not found", "Failed to pull image", nil},
			"broken":   {"{startError: {message: no such file}}", "RunContainerError", "no such file", "Error: no such file", nil},
			"slow":     {"{slowPull: {takes: 1h}}", "ContainerCreating", "", "", nil},
			"unprobed": {"neverReady", "ContainerCreating", "", "", nil},
			"unready":  {"neverReady", "", "", "Unhealthy Readiness probe failed: HTTP probe failed with statuscode: 503", []func(*corev1.Pod){probed}},
			"nonsense": {"{crash: {often: 1}}", "", "", `SimulatedFaultUnreadable annotation simulated.everynode.io/fault: json: unknown field "often"`, nil},
		} {
			c.bind(newPod(name, "demo", append(want.edits, bad(want.fault))...), "sim-0001")
			c.pass(15 * time.Second)
			p := c.pod(name)
			waiting := p.Status.ContainerStatuses[0].State.Waiting
			switch {
			case ready(p) != (name == "nonsense"):
				t.Errorf("%s: the pod's readiness is %v", name, ready(p))
			case want.reason == "" && waiting != nil, want.reason != "" && (waiting == nil || waiting.Reason != want.reason || !strings.Contains(waiting.Message, want.message)):
				t.Errorf("%s: the container waits for %+v, want %s with %q", name, waiting, want.reason, want.message)
			}
			got := strings.Join(c.events(recorder), "\n")
			if want.event == "" && got != "" || !strings.Contains(got, want.event) {
				t.Errorf("%s: events are %q, want %q", name, got, want.event)
			}
			if name == "memory" {
				if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Reason != "OOMKilled" || last.ExitCode != 137 {
					t.Errorf("the last state is %+v, want OOMKilled with 137", last)
				}
			}
			c.mark(name)
			c.events(recorder)
		}
	})
}

// A container that starts slowly is ready so long after its start, or starts so much later where it has no probe; one
// that crashes once runs on then.
func TestSlowAndFailingStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1}, nil)
		probed := func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{InitialDelaySeconds: 2} }
		c.bind(newPod("probed", "demo", probed, bad("{slowStart: {takes: 10s}}")), "sim-0001")
		c.bind(newPod("plain", "demo", bad("{slowStart: {takes: 10s}}")), "sim-0001")
		c.bind(newPod("once", "demo", bad("{crash: {after: 2s, times: 1}}")), "sim-0001")
		c.pass(9 * time.Second)
		for _, name := range []string{"probed", "plain"} {
			if p := c.pod(name); ready(p) {
				t.Errorf("%s is ready after 9 s: %+v", name, p.Status)
			}
		}
		if running := c.pod("probed").Status.ContainerStatuses[0].State.Running; running == nil {
			t.Error("a container with a probe does not run while it starts slowly")
		}
		c.pass(3 * time.Second)
		for _, name := range []string{"probed", "plain", "once"} {
			if p := c.pod(name); !ready(p) {
				t.Errorf("%s is not ready after 12 s: %+v", name, p.Status)
			}
		}
		c.pass(10 * time.Minute)
		if s := c.pod("once").Status.ContainerStatuses[0]; s.RestartCount != 1 || s.State.Running == nil {
			t.Errorf("what crashes once is %+v", s)
		}
	})
}

// Nodes have the sizes of the file in turn, and a label that names them.
func TestSizesOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sizes := plan(t, "sizes: [{name: small, cpu: 2, memory: 4Gi, pods: 20}, {storage: 1Ti}]")
		c := start(t, Config{Nodes: 3, Faults: sizes}, nil)
		for name, want := range map[string]string{
			"sim-0001": "small 2 4Gi 100Gi 20", "sim-0002": " 8 32Gi 1Ti 110", "sim-0003": "small 2 4Gi 100Gi 20",
		} {
			n := c.node(name)
			for _, has := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
				got := fmt.Sprintf("%s %s %s %s %s", n.Labels[corev1.LabelInstanceTypeStable], has.Cpu(), has.Memory(),
					has.StorageEphemeral(), has.Pods())
				if got != want {
					t.Errorf("%s has %q, want %q", name, got, want)
				}
			}
		}
	})
}

func TestSlowPullEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1}, nil)
		c.bind(newPod("p", "demo", bad("{slowPull: {takes: 30s}}")), "sim-0001")
		c.pass(29 * time.Second)
		if ready(c.pod("p")) {
			t.Error("the pod is ready before its image is there")
		}
		c.pass(2 * time.Second)
		if !ready(c.pod("p")) {
			t.Error("the pod is not ready though its image is there")
		}
	})
}

func TestIllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 4, Faults: plan(t, `
labels: [{key: rack, values: [r1, r2]}, {key: zone, values: [a, b, c]}]
faults:
- {name: bad network, nodes: {matchLabels: {zone: c}}, notReady: {for: 1m, message: no network}}
- {name: rack without power, nodes: {matchLabels: {rack: r2}}, powerLoss: {after: 2m, for: 10m}}
- {name: kernel, nodes: {matchLabels: {zone: c}}, maintenance: {condition: Drained, for: 1m, message: a new one}}
- {name: small, nodes: {matchLabels: {zone: b}}, room: {cpu: 100m}}`)}, nil)
		for i, want := range []string{"r1/a", "r2/b", "r1/c", "r2/a"} {
			if l := c.node(fmt.Sprintf("sim-000%d", i+1)).Labels; l["rack"]+"/"+l["zone"] != want {
				t.Errorf("node %d has the labels %v, want %s", i+1, l, want)
			}
		}
		if cpu := c.node("sim-0002").Status.Allocatable.Cpu().String(); cpu != "100m" {
			t.Errorf("the small node offers %s of CPU, want 100m", cpu)
		}
		if ready := condition(c.node("sim-0003"), corev1.NodeReady); ready.Status != corev1.ConditionFalse || ready.Reason != "KubeletNotReady" || ready.Message != "no network" {
			t.Errorf("the node that is not ready from the start says %+v", ready)
		}
		if drained := condition(c.node("sim-0003"), corev1.NodeDrained); drained.Status != corev1.ConditionTrue || drained.Message != "a new one" {
			t.Errorf("the node that is drained from the start says %+v", drained)
		}
		c.bind(newPod("p", "demo"), "sim-0004")
		c.pass(90 * time.Second)
		if drained := condition(c.node("sim-0003"), corev1.NodeDrained); drained.Status != corev1.ConditionFalse {
			t.Errorf("after its minute the node says %+v", drained)
		}
		if len(c.node("sim-0001").Status.Conditions) != 4 {
			t.Errorf("one on which nobody works says %+v", c.node("sim-0001").Status.Conditions)
		}
		if !healthy(c.node("sim-0003")) {
			t.Error("the node is not ready after its minute")
		}
		c.pass(time.Minute)
		for name, silent := range map[string]bool{"sim-0001": false, "sim-0002": true, "sim-0003": false, "sim-0004": true} {
			if got := c.silentFor(name) > 25*time.Second; got != silent {
				t.Errorf("without power in r2 node %s is silent: %v", name, got)
			}
		}
		c.bind(newPod("q", "demo"), "sim-0004")
		c.mark("p")
		if c.pod("q").Status.Phase == corev1.PodRunning {
			t.Error("a node without power runs a new pod")
		}
		c.pass(10 * time.Minute)
		if c.silentFor("sim-0004") > 20*time.Second || !ready(c.pod("q")) {
			t.Errorf("after the power came back the node was last heard of %s ago, and its new pod is %+v", c.silentFor("sim-0004"), c.pod("q").Status)
		}
		if _, err := c.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err == nil {
			t.Error("the pod that was deleted meanwhile is still there")
		}
	})
}

func TestFaultsByAnnotationComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 2}, nil)
		c.bind(newPod("p", "demo"), "sim-0001")
		c.annotate("sim-0001", "{pressure: {of: disk}}")
		if n := c.node("sim-0001"); condition(n, corev1.NodeDiskPressure).Status != corev1.ConditionTrue || condition(n, corev1.NodeReady).Status != corev1.ConditionTrue {
			t.Errorf("the node with a full disk says %+v", n.Status.Conditions)
		}
		c.annotate("sim-0001", "powerLoss")
		c.pass(time.Minute)
		if c.silentFor("sim-0001") < 50*time.Second || c.silentFor("sim-0002") > 20*time.Second {
			t.Errorf("nodes were last heard of %s and %s ago, want only the first silent", c.silentFor("sim-0001"), c.silentFor("sim-0002"))
		}
		c.annotate("sim-0001", "")
		if !healthy(c.node("sim-0001")) || c.silentFor("sim-0001") > 2*time.Second {
			t.Errorf("the node says %+v after its fault was taken away", c.node("sim-0001").Status.Conditions)
		}
		if s := c.pod("p").Status.ContainerStatuses[0]; s.RestartCount != 1 || s.State.Running == nil || s.LastTerminationState.Terminated.ExitCode != 255 {
			t.Errorf("after the power came back the container is %+v, want it started once more", s)
		}
		c.annotate("sim-0001", "crash")
		c.pass(5 * time.Second)
		if ready(c.pod("p")) {
			t.Error("a fault of pods on a node leaves its pods well")
		}
		c.annotate("sim-0001", "none")
		c.pass(time.Minute)
		if !ready(c.pod("p")) {
			t.Errorf("after the fault was taken away the pod is %+v", c.pod("p").Status)
		}
	})
}

func TestFlappingNodeKeepsItsContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1, Faults: plan(t, "faults: [{flaps: {up: 2m, down: 1m}}]")}, nil)
		c.bind(newPod("p", "demo"), "sim-0001")
		silent := 0
		for range 120 {
			c.pass(10 * time.Second)
			if c.silentFor("sim-0001") > 22*time.Second {
				silent++
			}
		}
		if silent < 20 || silent > 40 {
			t.Errorf("the node was silent at %d of 120 looks, want 20 to 40", silent)
		}
		if s := c.pod("p").Status.ContainerStatuses[0]; s.RestartCount != 0 {
			t.Errorf("its container was restarted %d times", s.RestartCount)
		}
	})
}

func TestRevisionKillsItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 3, Faults: plan(t, `
faults:
- {name: deadly, pods: {image: "deadly:*"}, killsNode: {after: 3m}}
- {name: shocking, pods: {env: {MODE: shock}}, killsNode: {after: 1m, for: 5m}}`)}, nil)
		c.bind(newPod("p", "deadly:2"), "sim-0001")
		c.bind(newPod("q", "demo", func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MODE", Value: "shock"}} }), "sim-0002")
		c.bind(newPod("r", "demo"), "sim-0003")
		c.pass(50 * time.Second)
		if !ready(c.pod("p")) || !ready(c.pod("q")) || c.silentFor("sim-0001") > 20*time.Second || c.silentFor("sim-0002") > 20*time.Second {
			t.Error("the pods are not ready, or their nodes silent, before they kill")
		}
		c.pass(4 * time.Minute)
		if c.silentFor("sim-0001") < time.Minute || c.silentFor("sim-0002") < time.Minute || c.silentFor("sim-0003") > 20*time.Second {
			t.Error("want the first two nodes dead, and the third alive")
		}
		c.pass(75 * time.Second)
		if s := c.pod("q").Status.ContainerStatuses[0]; c.silentFor("sim-0002") > 20*time.Second || s.RestartCount != 1 {
			t.Errorf("the second node was last heard of %s ago, and its container is %+v; want it back, and the container started again", c.silentFor("sim-0002"), s)
		}
		c.pass(time.Hour)
		if c.silentFor("sim-0001") < time.Hour {
			t.Error("the first node is back")
		}
		c.annotate("sim-0001", "none")
		if c.silentFor("sim-0001") > 2*time.Second {
			t.Error("a node that is spared is not back")
		}
	})
}

// TestNobodyIllCostsNothing: with a plan whose faults concern nobody the same writes are made as without one.
func TestNobodyIllCostsNothing(t *testing.T) {
	writes := func(faults *illness.Plan) (n int32) {
		synctest.Test(t, func(t *testing.T) {
			var count atomic.Int32
			c := start(t, Config{Nodes: 50, Faults: faults}, nil)
			for _, verb := range []string{"create", "update", "delete"} {
				c.client.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					count.Add(1)
					return false, nil, nil
				})
			}
			for i := range 50 {
				c.bind(newPod(fmt.Sprintf("p-%d", i), "demo"), fmt.Sprintf("sim-%04d", i+1))
			}
			c.pass(10 * time.Minute)
			n = count.Load()
		})
		return n
	}
	without := writes(nil)
	with := writes(plan(t, "faults: [{nodes: {matchLabels: {a: b}}, powerLoss: {}}, {pods: {image: other}, crash: {}}]"))
	if without != with || without < 50 {
		t.Errorf("50 nodes made %d writes with faults that concern nobody, and %d without", with, without)
	}
}
