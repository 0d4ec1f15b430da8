package agent

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
)

func wantEvents(t *testing.T, a *podstest.API, pod string, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(a.Log()) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), pod+": "); ok {
			got = append(got, rest)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events of %s:\n  %s\nwant:\n  %s", pod, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// stories are what happens to a pod. They run beside each other on one machine: starting one takes seconds.
type stories struct {
	*machine
	*podstest.API
	node *testNode
}

func TestOnContainerd(t *testing.T) {
	m := newMachine(t)
	a := podstest.NewAPI()
	s := stories{machine: m, API: a, node: startNode(t, m, a)}
	for name, story := range map[string]func(*testing.T){
		"a pod starts, has logs, and ends when it is deleted": s.plain,
		"resources and security reach the container":          s.settings,
		"a container that fails waits longer and longer":      s.crashes,
		"init containers run first, and a pod can succeed":    s.succeeds,
		"an image that cannot be pulled":                      s.unreachableImage,
		"an image that must not be pulled":                    s.neverPull,
		"a container that would be root":                      s.root,
		"a program that is not there":                         s.noProgram,
		"a container that fails its liveness probe":           s.unhealthy,
		"a container that takes too much memory":              s.hog,
		"a host port that is taken":                           s.portTaken,
		"a pod for another system":                            s.windows,
		"a sandbox that dies":                                 s.sandboxDies,
		"a pod that the API forgot":                           s.forgotten,
		"a pod with a network of its own":                     s.network,
		"hooks, and a container that does not want to end":    s.hooks,
		"a pod that serves until its end":                     s.serves,
		"a probe whose command does not end":                  s.hangs,
		"containers added to a running pod":                   s.debugged,
		"a running pod that gets more, and less":              s.resized,
		"a pod that gets more before its container is made":   s.grows,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t)
		})
	}
}

func (s stories) plain(t *testing.T) {
	pod := podstest.Pod("plain", "env", "GREETING")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GREETING", Value: "hello"}}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	status := got.Status.ContainerStatuses[0]
	if status.State.Running == nil || !status.Ready || !*status.Started || status.RestartCount != 0 {
		t.Errorf("container status %+v, want it running, started and ready", status)
	}
	if !strings.HasPrefix(status.ContainerID, "containerd://") || !strings.HasPrefix(status.ImageID, "sha256:") {
		t.Errorf("IDs %q and %q, want the runtime's", status.ContainerID, status.ImageID)
	}
	if got.Status.PodIP != "192.0.2.1" || got.Status.HostIP != "192.0.2.1" || got.Status.StartTime == nil {
		t.Errorf("addresses %q, %q, start %v", got.Status.PodIP, got.Status.HostIP, got.Status.StartTime)
	}
	awaitFile(t, filepath.Join(s.dir, "log/pods/default_plain_uid-plain/main/0.log"), "hello")
	links, _ := filepath.Glob(filepath.Join(s.dir, "log/containers/plain_default_main-*.log"))
	if len(links) != 1 {
		t.Errorf("links to the log: %v, want one", links)
	}
	s.end(t, pod, 5)
	wantEvents(t, s.API, "plain",
		`Normal Pulled spec.containers{main} Container image "everynode.test/box:1" already present on machine`,
		`Normal Created spec.containers{main} Created container: main`,
		`Normal Started spec.containers{main} Started container main`,
		`Normal Killing spec.containers{main} Stopping container main`)
}

// end deletes the pod and waits until nothing of it is left.
func (s stories) end(t *testing.T, pod *corev1.Pod, grace int64) {
	t.Helper()
	s.MarkDeleted(pod.UID, grace)
	s.Await(t, pod.UID, "to be gone", podstest.IsGone)
	awaitNothing(t, s.machine, pod.UID)
}

func (s stories) settings(t *testing.T) {
	pod := podstest.Pod("limits", "sleep")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"),
			corev1.ResourceMemory: resource.MustParse("20Mi")},
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("30Mi")},
	}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsUser: new(int64(1234)), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	if got.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("QoS class %s, want Burstable", got.Status.QOSClass)
	}
	id := strings.TrimPrefix(got.Status.ContainerStatuses[0].ContainerID, "containerd://")
	resp, err := s.services.Runtime.ContainerStatus(t.Context(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	info := resp.Info["info"]
	for _, want := range []string{`"uid":1234`, `"noNewPrivileges":true`, `"readonly":true`, `"limit":31457280`,
		`"shares":102`} {
		if !strings.Contains(info, want) {
			t.Errorf("the container's settings lack %s", want)
		}
	}
	if !strings.Contains(info, s.cgroupRoot+"/kubepods/burstable/poduid-limits/") {
		t.Errorf("the container is not in its pod's cgroup")
	}
	s.end(t, pod, 1)
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*" + s.cgroupRoot + "/kubepods/burstable/poduid-limits")
	if len(dirs) > 0 {
		t.Errorf("cgroups left: %v", dirs)
	}
}

func waitsFor(reason string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil && c.State.Waiting.Reason == reason {
				return true
			}
		}
		return false
	}
}

func (s stories) crashes(t *testing.T) {
	pod := podstest.Pod("crashes", "last", "farewell", "/dev/termination-log", "3")
	s.Create(pod)
	got := s.Await(t, pod.UID, "to crash in a loop", waitsFor("CrashLoopBackOff"))
	status := got.Status.ContainerStatuses[0]
	if want := "back-off 10s restarting failed container=main pod=crashes_default(uid-crashes)"; status.State.Waiting.Message != want {
		t.Errorf("message %q, want %q", status.State.Waiting.Message, want)
	}
	last := status.LastTerminationState.Terminated
	if status.RestartCount != 1 || last == nil || last.ExitCode != 3 || last.Message != "farewell" ||
		last.Reason != "Error" {
		t.Errorf("after %d restarts the last end was %+v, want one restart, exit code 3 and its message", status.RestartCount,
			last)
	}
	s.AwaitEvent(t, "crashes: Warning BackOff spec.containers{main} Back-off restarting failed container main in pod crashes_default(uid-crashes)")
	s.end(t, pod, 1)
}

func (s stories) succeeds(t *testing.T) {
	pod := podstest.Pod("succeeds", "say", "done")
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: podstest.BoxImage, Args: []string{"say", "first"},
		ImagePullPolicy: corev1.PullNever}}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to succeed", podstest.HasPhase(corev1.PodSucceeded))
	init, main := got.Status.InitContainerStatuses[0].State.Terminated, got.Status.ContainerStatuses[0].State.Terminated
	if init == nil || main == nil || main.StartedAt.Before(&init.FinishedAt) || main.Reason != "Completed" {
		t.Errorf("init ended %+v, main %+v, want the first before the second began", init, main)
	}
	awaitFile(t, filepath.Join(s.dir, "log/pods/default_succeeds_uid-succeeds/main/0.log"), "done")
	s.Drop(pod.UID) // as the API does when an ended pod is deleted
	awaitNothing(t, s.machine, pod.UID)
}

func (s stories) unreachableImage(t *testing.T) {
	pod := podstest.Pod("unreachable", "sleep")
	pod.Spec.Containers[0].Image = "127.0.0.1:1/nothing:1"
	s.Create(pod)
	got := s.Await(t, pod.UID, "to fail to pull", waitsFor("ErrImagePull"))
	if message := got.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(message, "127.0.0.1:1") {
		t.Errorf("message %q, want why", message)
	}
	got = s.Await(t, pod.UID, "to wait before it pulls again", waitsFor("ImagePullBackOff"))
	if message := got.Status.ContainerStatuses[0].State.Waiting.Message; !strings.HasPrefix(message,
		`Back-off pulling image "127.0.0.1:1/nothing:1": ErrImagePull: `) {
		t.Errorf("message %q, want that it waits, and why", message)
	}
	for _, want := range []string{`Normal Pulling spec.containers{main} Pulling image "127.0.0.1:1/nothing:1"`,
		`Warning Failed spec.containers{main} Failed to pull image "127.0.0.1:1/nothing:1": `,
		`Warning Failed spec.containers{main} Error: ErrImagePull`,
		`Normal BackOff spec.containers{main} Back-off pulling image "127.0.0.1:1/nothing:1"`,
		`Warning Failed spec.containers{main} Error: ImagePullBackOff`} {
		s.AwaitEvent(t, "unreachable: "+want)
	}
	s.end(t, pod, 1)
}

func (s stories) neverPull(t *testing.T) {
	pod := podstest.Pod("never", "sleep")
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = "everynode.test/none:1", corev1.PullNever
	s.Create(pod)
	got := s.Await(t, pod.UID, "to refuse to pull", waitsFor("ErrImageNeverPull"))
	want := `Container image "everynode.test/none:1" is not present with pull policy of Never`
	if message := got.Status.ContainerStatuses[0].State.Waiting.Message; message != want {
		t.Errorf("message %q, want %q", message, want)
	}
	s.end(t, pod, 1)
}

func (s stories) root(t *testing.T) {
	pod := podstest.Pod("root", "sleep")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsNonRoot: new(true)}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to refuse to run", waitsFor("CreateContainerConfigError"))
	want := `container has runAsNonRoot and image will run as root (pod: "root_default(uid-root)", container: main)`
	if message := got.Status.ContainerStatuses[0].State.Waiting.Message; message != want {
		t.Errorf("message %q, want %q", message, want)
	}
	s.end(t, pod, 1)
}

func (s stories) noProgram(t *testing.T) {
	pod := podstest.Pod("noprogram")
	pod.Spec.Containers[0].Command = []string{"/no/such/program"}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to fail to start", waitsFor("RunContainerError"))
	if message := got.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(message, "/no/such/program") {
		t.Errorf("message %q, want why", message)
	}
	s.Await(t, pod.UID, "to crash in a loop", waitsFor("CrashLoopBackOff"))
	s.end(t, pod, 1)
}

func (s stories) unhealthy(t *testing.T) {
	pod := podstest.Pod("unhealthy", "sleep")
	pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	_, id, _ := strings.Cut(got.Status.ContainerStatuses[0].ContainerID, "://")
	s.node.prober.Set(pod.UID, podworker.Probe{Container: "main", ContainerID: id, Known: true, Started: true, Ready: true,
		LivenessFailed: true,
		Message:        "Container main failed liveness probe, will be restarted"})
	s.node.pods.ProbeChanged(pod.UID)
	got = s.Await(t, pod.UID, "to be restarted", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1 && podstest.IsReady(p)
	})
	if last := got.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil ||
		last.ContainerID != "containerd://"+id {
		t.Errorf("last state %+v, want that of the container that was killed", last)
	}
	s.AwaitEvent(t, "unhealthy: Normal Killing spec.containers{main} Container main failed liveness probe, will be restarted")
	s.end(t, pod, 1)
}

func (s stories) hog(t *testing.T) {
	pod := podstest.Pod("hog", "hog")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("24Mi")}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to fail", podstest.HasPhase(corev1.PodFailed))
	if end := got.Status.ContainerStatuses[0].State.Terminated; end == nil || end.Reason != "OOMKilled" ||
		end.ExitCode != 137 {
		t.Errorf("it ended as %+v, want OOMKilled", end)
	}
	s.Drop(pod.UID)
	awaitNothing(t, s.machine, pod.UID)
}

func (s stories) portTaken(t *testing.T) {
	first, second := podstest.Pod("port1", "sleep"), podstest.Pod("port2", "sleep")
	first.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
	second.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
	s.Create(first)
	s.Await(t, first.UID, "to be ready", podstest.IsReady)
	s.Create(second)
	got := s.Await(t, second.UID, "to be refused", podstest.HasPhase(corev1.PodFailed))
	if got.Status.Reason != "NodePorts" || len(got.Status.ContainerStatuses) > 0 {
		t.Errorf("status %+v, want a refusal for its ports and no container", got.Status)
	}
	s.end(t, first, 1)
	third := podstest.Pod("port3", "sleep")
	third.Spec.Containers[0].Ports = first.Spec.Containers[0].Ports
	s.Create(third)
	s.Await(t, third.UID, "to get the port that was given back", podstest.IsReady)
	s.end(t, third, 1)
	s.Drop(second.UID)
}

func (s stories) sandboxDies(t *testing.T) {
	pod := podstest.Pod("dies", "sleep")
	s.Create(pod)
	s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	filter := &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID)}}
	list, err := s.services.Runtime.ListPodSandbox(t.Context(), filter)
	if err != nil || len(list) != 1 {
		t.Fatalf("sandboxes %v, %v", list, err)
	}
	if err := s.services.Runtime.StopPodSandbox(t.Context(), list[0].Id); err != nil {
		t.Fatal(err)
	}
	// Its container may be seen to die first, and be started in vain in the old sandbox.
	s.Await(t, pod.UID, "to run in a new sandbox", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount >= 1 && podstest.IsReady(p)
	})
	filter.State = &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	now, err := s.services.Runtime.ListPodSandbox(t.Context(), filter)
	if err != nil || len(now) != 1 || now[0].Id == list[0].Id {
		t.Errorf("sandboxes %v, %v, want a new one in place of %s", now, err, list[0].Id)
	}
	s.AwaitEvent(t, "dies: Normal SandboxChanged Pod sandbox changed, it will be killed and re-created.")
	s.end(t, pod, 1)
}

func (s stories) forgotten(t *testing.T) {
	pod := podstest.Pod("forgotten", "sleep")
	s.Create(pod)
	s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	s.Drop(pod.UID)
	awaitNothing(t, s.machine, pod.UID)
}

func (s stories) network(t *testing.T) {
	pod := podstest.Pod("network", "cat", "/etc/hosts", "/etc/hostname")
	pod.Spec.HostNetwork = false
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "10.1.2.3", Hostnames: []string{"friend"}}}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to succeed", podstest.HasPhase(corev1.PodSucceeded))
	if !strings.HasPrefix(got.Status.PodIP, "10.99.0.") {
		t.Errorf("pod IP %q, want one of the network's", got.Status.PodIP)
	}
	log := filepath.Join(s.dir, "log/pods/default_network_uid-network/main/0.log")
	awaitFile(t, log, got.Status.PodIP+"\tnetwork\n")
	awaitFile(t, log, "10.1.2.3\tfriend\n")
	s.Drop(pod.UID)
	awaitNothing(t, s.machine, pod.UID)
}

func (s stories) hooks(t *testing.T) {
	pod := podstest.Pod("hooks", "stubborn")
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/box", "touch", "/tmp/started"}}},
		PreStop:   &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/box", "cat", "/tmp/started"}}},
	}
	s.Create(pod)
	s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	s.end(t, pod, 8) // the hook has to end in this time, also on a busy machine
	if strings.Contains(s.Log(), "hooks: Warning") {
		t.Errorf("a hook failed:\n%s", s.Log())
	}
	bad := podstest.Pod("badhook", "sleep")
	bad.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/box", "exit", "4"}}},
	}
	s.Create(bad)
	s.Await(t, bad.UID, "to crash in a loop", waitsFor("CrashLoopBackOff"))
	s.AwaitEvent(t, "badhook: Warning FailedPostStartHook spec.containers{main} PostStartHook failed")
	s.end(t, bad, 1)
}

// A volume that is missing holds the pod back until it is there. It has a node of its own: all pods of the test's
// share one.
func TestMissingVolume(t *testing.T) {
	m := newMachine(t)
	s := stories{machine: m, API: podstest.NewAPI()}
	s.node = startNode(t, m, s.API)
	s.node.volumes.Fail(errors.Join(errors.New(`MountVolume.SetUp failed for volume "v" : configmap "c" not found`)))
	pod := podstest.Pod("volume", "sleep")
	s.Create(pod)
	s.Await(t, pod.UID, "to wait", waitsFor("ContainerCreating"))
	s.AwaitEvent(t, `volume: Warning FailedMount MountVolume.SetUp failed for volume "v" : configmap "c" not found`)
	s.node.volumes.Fail(nil)
	s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	s.end(t, pod, 1)
}

// An agent that is killed and started again finds its containers, and starts none; what went away meanwhile is cleared
// away, with its preStop hook.
func TestAgentRestart(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bye" {
			asked.Add(1)
		}
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	podstest.Must(t, err)
	port, err := strconv.Atoi(at.Port())
	podstest.Must(t, err)
	m := newMachine(t)
	s := stories{machine: m, API: podstest.NewAPI()}
	s.node = startNode(t, m, s.API)
	stays, goes, leaves := podstest.Pod("stays", "sleep"), podstest.Pod("goes", "sleep"), podstest.Pod("leaves", "sleep")
	stays.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	goes.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "bye", ContainerPort: int32(port)}}
	goes.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		HTTPGet: &corev1.HTTPGetAction{Host: at.Hostname(), Port: intstr.FromString("bye"), Path: "/bye"}}}
	for _, pod := range []*corev1.Pod{stays, goes, leaves} {
		s.Create(pod)
	}
	before := s.Await(t, stays.UID, "to run", podstest.HasPhase(corev1.PodRunning))
	s.Await(t, goes.UID, "to be ready", podstest.IsReady)
	s.Await(t, leaves.UID, "to be ready", podstest.IsReady)
	_, id, _ := strings.Cut(before.Status.ContainerStatuses[0].ContainerID, "://")
	s.node.prober.Set(stays.UID, podworker.Probe{Container: "main", ContainerID: id, Known: true, Started: true,
		Ready: true})
	s.node.pods.ProbeChanged(stays.UID)
	before = s.Await(t, stays.UID, "to be ready", podstest.IsReady)

	s.node.stop()
	s.Drop(goes.UID)
	s.MarkDeleted(leaves.UID, 1)
	events := s.Log()
	s.node = startNode(t, m, s.API)
	s.Await(t, leaves.UID, "to be gone", podstest.IsGone)
	awaitNothing(t, m, goes.UID)
	awaitNothing(t, m, leaves.UID)
	if n := asked.Load(); n != 1 {
		t.Errorf("the preStop hook of the pod that was deleted meanwhile ran %d times, want once", n)
	}
	after := s.Get(stays.UID)
	if !reflect.DeepEqual(before.Status, after.Status) {
		t.Errorf("the status changed from\n%+v\nto\n%+v", before.Status, after.Status)
	}
	if news := strings.TrimPrefix(s.Log(), events); strings.Contains(news, "stays:") {
		t.Errorf("something happened to the pod that stays:\n%s", news)
	}
	s.end(t, stays, 1)
}

// awaitNothing waits until the runtime has nothing of the pod, nor the node any log.
func awaitNothing(t *testing.T, m *machine, uid types.UID) {
	t.Helper()
	podstest.Eventually(t, "nothing of pod "+string(uid)+" is left", func() bool {
		filter := &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(uid)}}
		list, err := m.services.Runtime.ListPodSandbox(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		logs, _ := filepath.Glob(filepath.Join(m.dir, "log/pods/*_"+string(uid)))
		return len(list) == 0 && len(logs) == 0
	})
}

func awaitFile(t *testing.T, path, text string) {
	t.Helper()
	podstest.Eventually(t, path+" has "+text, func() bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(b), text)
	})
}
