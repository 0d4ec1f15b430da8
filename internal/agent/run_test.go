package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func ptr[T any](v T) *T { return &v }

func boxPod(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			NodeName: "n1", HostNetwork: true, RestartPolicy: corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: ptr(int64(5)),
			Containers: []corev1.Container{{
				Name: "main", Image: boxImage, Args: args, ImagePullPolicy: corev1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}},
		},
	}
}

func wantEvents(t *testing.T, a *api, pod string, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(a.log()) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), pod+": "); ok {
			got = append(got, rest)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events of %s:\n  %s\nwant:\n  %s", pod, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// One machine serves all stories below: starting one takes seconds.
func TestOnContainerd(t *testing.T) {
	m := newMachine(t)
	a := newAPI()
	n := startNode(t, m, a)

	t.Run("a pod starts, has logs, and ends when it is deleted", func(t *testing.T) {
		pod := boxPod("plain", "env", "GREETING")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GREETING", Value: "hello"}}
		a.create(pod)
		got := a.await(t, pod.UID, "to be ready", isReady)
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
		awaitFile(t, filepath.Join(m.dir, "log/pods/default_plain_uid-plain/main/0.log"), "hello")
		links, _ := filepath.Glob(filepath.Join(m.dir, "log/containers/plain_default_main-*.log"))
		if len(links) != 1 {
			t.Errorf("links to the log: %v, want one", links)
		}
		a.markDeleted(pod.UID, 5)
		a.await(t, pod.UID, "to be gone", isGone)
		wantEvents(t, a, "plain",
			`Normal Pulled spec.containers{main} Container image "everynode.test/box:1" already present on machine`,
			`Normal Created spec.containers{main} Created container: main`,
			`Normal Started spec.containers{main} Started container main`,
			`Normal Killing spec.containers{main} Stopping container main`)
		awaitNothing(t, m, pod.UID)
	})

	t.Run("resources, security and mounts reach the container", func(t *testing.T) { testContainerSettings(t, m, a, n) })
}

func testContainerSettings(t *testing.T, m *machine, a *api, n *testNode) {
	data := filepath.Join(m.dir, "data")
	if err := os.MkdirAll(data, 0o777); err != nil {
		t.Fatal(err)
	}
	pod := boxPod("limits", "sleep")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("20Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("30Mi")},
	}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsUser: ptr(int64(1234)), ReadOnlyRootFilesystem: ptr(true), AllowPrivilegeEscalation: ptr(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	a.create(pod)
	got := a.await(t, pod.UID, "to be ready", isReady)
	if got.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("QoS class %s, want Burstable", got.Status.QOSClass)
	}
	id := strings.TrimPrefix(got.Status.ContainerStatuses[0].ContainerID, "containerd://")
	resp, err := m.services.Runtime.ContainerStatus(t.Context(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	info := resp.Info["info"]
	for _, want := range []string{`"uid":1234`, `"noNewPrivileges":true`, `"readonly":true`, `"limit":31457280`, `"shares":102`} {
		if !strings.Contains(info, want) {
			t.Errorf("the container's settings lack %s", want)
		}
	}
	if !strings.Contains(info, m.cgroupRoot+"/kubepods/burstable/poduid-limits/") {
		t.Errorf("the container is not in its pod's cgroup")
	}
	a.markDeleted(pod.UID, 1)
	a.await(t, pod.UID, "to be gone", isGone)
	awaitNothing(t, m, pod.UID)
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*" + m.cgroupRoot + "/kubepods/burstable/poduid-limits")
	if len(dirs) > 0 {
		t.Errorf("cgroups left: %v", dirs)
	}
	_ = n
}

// awaitNothing waits until the runtime has nothing of the pod, nor the node any log.
func awaitNothing(t *testing.T, m *machine, uid types.UID) {
	t.Helper()
	eventually(t, "nothing of pod "+string(uid)+" is left", func() bool {
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
	eventually(t, path+" has "+text, func() bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(b), text)
	})
}
