package podworker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
)

// A container's status says with what it runs, once it is there; the conditions say of which generation they are.
func TestWhatAContainerRunsWith(t *testing.T) {
	resources := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 7}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{
		{Name: "there", Image: "i", Resources: resources, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "keys", MountPath: "/keys", ReadOnly: true}, {Name: "all", MountPath: "/all", ReadOnly: true}, {Name: "below", MountPath: "below/it", ReadOnly: true}}},
		{Name: "plain", Image: "i"},
		{Name: "not yet", Image: "i", Resources: resources},
	}}}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)}
	pod.Status.Conditions = []corev1.PodCondition{scheduled}
	now := time.Unix(2000, 0)
	in := Input{Pod: pod, Memory: &Memory{}, Now: now, Runtime: &Runtime{
		Sandboxes: []Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}},
		Containers: []Container{{ID: "c1", Name: "there", SandboxID: "s", State: Running, StartedAt: now, ReadOnlyBelow: []string{"/all", "/below/it"}},
			{ID: "c2", Name: "plain", SandboxID: "s", State: Running, StartedAt: now}},
	}}
	got := Status(in, &pod.Status, nil)
	disabled, enabled := corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled
	if diff := cmp.Diff([]corev1.VolumeMountStatus{{Name: "data", MountPath: "/data"},
		{Name: "keys", MountPath: "/keys", ReadOnly: true, RecursiveReadOnly: &disabled}, {Name: "all", MountPath: "/all", ReadOnly: true, RecursiveReadOnly: &enabled},
		{Name: "below", MountPath: "below/it", ReadOnly: true, RecursiveReadOnly: &enabled}}, got.ContainerStatuses[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&resources, got.ContainerStatuses[0].Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(resources.Requests, got.ContainerStatuses[0].AllocatedResources); diff != "" {
		t.Errorf("allocated resources (-want +got):\n%s", diff)
	}
	if s := got.ContainerStatuses[1]; s.Resources == nil || s.AllocatedResources != nil || s.VolumeMounts != nil {
		t.Errorf("a container that asks for nothing runs with %+v", s)
	}
	if s := got.ContainerStatuses[2]; s.Resources != nil || s.AllocatedResources != nil {
		t.Errorf("a container that is not there runs with %+v", s)
	}
	for _, c := range got.Conditions {
		if c.ObservedGeneration != 7 {
			t.Errorf("condition %s is of generation %d, want 7", c.Type, c.ObservedGeneration)
		}
		if c.Type == corev1.PodScheduled && !c.LastTransitionTime.Equal(&scheduled.LastTransitionTime) {
			t.Errorf("the pod was scheduled at %v, want %v", c.LastTransitionTime, scheduled.LastTransitionTime)
		}
	}
}

// The status says as whom a container runs and what tells it to stop, where the runtime says so.
func TestUserAndStopSignal(t *testing.T) {
	w := newWorld(podSpec{containers: []string{"a"}}.pod())
	for len(w.step().Actions) > 0 {
	}
	signal := corev1.SIGUSR1
	w.runtime.Containers[0].User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 5, GID: 6}}
	w.runtime.Containers[0].StopSignal = &signal
	w.report()
	got := w.status.ContainerStatuses[0]
	if got.User == nil || got.User.Linux.UID != 5 || got.StopSignal == nil || *got.StopSignal != signal {
		t.Errorf("user %+v, stop signal %v", got.User, got.StopSignal)
	}
}

// What the volumes of a pod came to show cannot change: they go on to show it, though the node cannot read it now.
func TestContentThatWasMountedStaysMounted(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}}
	status := func(prev corev1.PodStatus, second int64, c Content) (corev1.PodStatus, corev1.PodCondition) {
		s := Status(Input{Pod: pod, Memory: &Memory{}, Now: time.Unix(second, 0), Content: c}, &prev, nil)
		if is := findCondition(s.Conditions, content.MountedCondition); is != nil {
			return s, *is
		}
		return s, corev1.PodCondition{}
	}
	away := errors.New("the API is away")
	s, is := status(corev1.PodStatus{}, 1, Content{Key: "a", Err: away})
	if is.Status != corev1.ConditionFalse || is.Message != "a: the API is away" {
		t.Errorf("what was never mounted is %+v", is)
	}
	s, mounted := status(s, 2, Content{Key: "a"})
	if mounted.Status != corev1.ConditionTrue || !mounted.LastTransitionTime.Equal(new(metav1.Unix(2, 0))) {
		t.Errorf("what is mounted is %+v", mounted)
	}
	s, is = status(s, 3, Content{Key: "a", Err: away})
	if is != mounted {
		t.Errorf("what was mounted is %+v, want %+v", is, mounted)
	}
	if _, is = status(s, 4, Content{Key: "b", Err: away}); is.Status != corev1.ConditionFalse {
		t.Errorf("other content is %+v", is)
	}
}

// Since when a node says that it cannot fetch what it was asked for does not depend on the words of each try.
func TestSinceWhenImagesCannotBeFetched(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}}
	first := fetch.Request{Revision: "b", At: time.Unix(1, 0)}
	again := fetch.Request{Revision: "b", At: time.Unix(5, 0)}
	var s corev1.PodStatus
	for i, c := range []struct {
		answer corev1.PodCondition
		since  int64
	}{
		{first.Answer(fetch.Unreachable, "dial tcp: i/o timeout"), 11},
		{first.Answer(fetch.Unreachable, "dial tcp: connection refused"), 11},
		{first.Answer(fetch.NoSpace, "disk: full"), 11},
		{again.Answer(fetch.NoSpace, "disk: full"), 14},
		{again.Answer(fetch.Fetched, ""), 15},
		{again.Answer(fetch.Fetched, ""), 15},
	} {
		s = Status(Input{Pod: pod, Memory: &Memory{}, Now: time.Unix(int64(11+i), 0), Fetched: &c.answer}, &s, nil)
		is := findCondition(s.Conditions, fetch.Condition)
		if is == nil || is.Message != c.answer.Message || !is.LastTransitionTime.Equal(new(metav1.Unix(c.since, 0))) {
			t.Errorf("%d: it says %+v, want since %d %+v", i, is, c.since, c.answer)
		}
	}
}

// A status says the digest of an image that a container has as a volume, of containers of all sorts, and keeps it when the
// runtime has lost the container. One that the API would not take is left out.
func TestImagesOfVolumes(t *testing.T) {
	const digest = "example.com/rules@sha256:0b"
	mounts := []corev1.VolumeMount{{Name: "rules", MountPath: "/rules"}, {Name: "data", MountPath: "/data"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n",
		InitContainers: []corev1.Container{{Name: "init", Image: "i", VolumeMounts: mounts}},
		Containers:     []corev1.Container{{Name: "main", Image: "i", VolumeMounts: mounts}, {Name: "long", Image: "i", VolumeMounts: mounts}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "i", VolumeMounts: mounts}}}}}
	now, is := time.Unix(2000, 0), map[string]string{"rules": digest}
	in := Input{Pod: pod, Memory: &Memory{}, Now: now, Runtime: &Runtime{
		Sandboxes: []Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}},
		Containers: []Container{
			{ID: "c0", Name: "init", SandboxID: "s", State: Exited, StartedAt: now, FinishedAt: now, VolumeImages: is},
			{ID: "c1", Name: "main", SandboxID: "s", State: Running, StartedAt: now, VolumeImages: is},
			{ID: "c2", Name: "debug", SandboxID: "s", State: Running, StartedAt: now, VolumeImages: is},
			{ID: "c3", Name: "long", SandboxID: "s", State: Running, StartedAt: now,
				VolumeImages: map[string]string{"rules": strings.Repeat("a", 257)}},
		},
	}}
	want := []corev1.VolumeMountStatus{{Name: "rules", MountPath: "/rules", VolumeStatus: &corev1.VolumeStatus{
		Image: &corev1.ImageVolumeStatus{ImageRef: digest}}}, {Name: "data", MountPath: "/data"}}
	for range 2 {
		got := Status(in, &pod.Status, nil)
		for name, s := range map[string]corev1.ContainerStatus{"init": got.InitContainerStatuses[0], "main": got.ContainerStatuses[0],
			"debug": got.EphemeralContainerStatuses[0]} {
			if diff := cmp.Diff(want, s.VolumeMounts); diff != "" {
				t.Errorf("mounts of %s (-want +got):\n%s", name, diff)
			}
		}
		if of := got.ContainerStatuses[1].VolumeMounts[0].VolumeStatus; of != nil {
			t.Errorf("a reference of 257 characters is told: %+v", of)
		}
		pod.Status, in.Runtime = got, &Runtime{}
	}
}
