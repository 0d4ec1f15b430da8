package simulator

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/everynode/everynode/internal/objects/pod/podtest"
	"github.com/everynode/everynode/internal/simulator/illness"
)

// TestStatusEqualsWhatIsStored: the API keeps whole seconds. A status that differs from the stored one for that reason
// would be written again for ever.
func TestStatusEqualsWhatIsStored(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC)
	object := newPod("p", "demo", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: "demo"}}
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	})
	object.Spec.NodeName = "n"
	p := &pod{uid: "p", hostIPs: []string{"100.64.0.1"}, image: DefaultImages, imageID: (*illness.Plan)(nil).ImageID, hasImage: func(string) bool { return false },
		takeAddress: func() (string, error) { return "10.0.0.2", nil }}
	encoded, err := json.Marshal(p.step(object, false, now).status)
	if err != nil {
		t.Fatal(err)
	}
	stored := object.DeepCopy()
	if err := json.Unmarshal(encoded, &stored.Status); err != nil {
		t.Fatal(err)
	}
	if !ready(stored) {
		t.Fatalf("pod is not ready after one step: %s", encoded)
	}
	if again := p.step(stored, false, now.Add(time.Minute)).status; !equality.Semantic.DeepEqual(*again, stored.Status) {
		t.Errorf("stored status\n%+v\nis not what the node says of the same pod a minute later\n%+v", stored.Status, *again)
	}
}

// What a container has of its tag it keeps until it starts again.
func TestTagThatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1, Faults: plan(t, "tags: {move: 10s}")}, nil)
		c.bind(newPod("p", "demo:1", bad("{crash: {after: 1m, times: 1}}")), "sim-0001")
		c.bind(newPod("q", "demo@sha256:abc"), "sim-0001")
		first := c.pod("p").Status.ContainerStatuses[0].ImageID
		c.pass(50 * time.Second)
		if is := c.pod("p").Status.ContainerStatuses[0].ImageID; is != first || !strings.HasPrefix(is, "demo@sha256:") {
			t.Errorf("the container that began with %q has %q", first, is)
		}
		c.pass(time.Minute)
		if is := c.pod("p").Status.ContainerStatuses[0].ImageID; is == first {
			t.Errorf("the container that started again has %q still", is)
		}
		if is := c.pod("q").Status.ContainerStatuses[0].ImageID; is != "demo@sha256:abc" {
			t.Errorf("the container that was made with a digest has %q", is)
		}
	})
}

func TestAddresses(t *testing.T) {
	pool, err := newAddresses("10.244.1.0/29", 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 5 {
		got = append(got, pool.take())
	}
	if want := []string{"10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5", "10.244.1.6"}; !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("addresses are %v, want %v: not the network's, the bridge's or the broadcast address", got, want)
	}
	pool.give("10.244.1.4")
	if next := pool.take(); next != "10.244.1.4" {
		t.Errorf("next address is %s, want the one that was given back", next)
	}
	if _, err := newAddresses("nonsense", 1); err == nil {
		t.Error("a range that cannot be read is no error")
	}
	madeUp, err := newAddresses("", 5000)
	if err != nil || madeUp.take() != "240.19.136.2" {
		t.Errorf("made-up range of node 5000 is %v, %v, want 240.19.136.0/24", madeUp, err)
	}
}

// A simulated node says what its pods have as image volumes, once for all containers and starts of a pod; and a
// simulator that starts again knows it of the pod's status.
func TestImageVolumes(t *testing.T) {
	mounting := func(image string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{podtest.ImageVolume("rules", image)}
			mounts := []corev1.VolumeMount{{Name: "rules", MountPath: "/rules"}}
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "demo:1", VolumeMounts: mounts}}
			p.Spec.Containers[0].VolumeMounts = mounts
		}
	}
	of := func(s corev1.ContainerStatus) string {
		if len(s.VolumeMounts) != 1 || s.VolumeMounts[0].VolumeStatus == nil || s.VolumeMounts[0].VolumeStatus.Image == nil {
			return ""
		}
		return s.VolumeMounts[0].VolumeStatus.Image.ImageRef
	}
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1, Faults: plan(t, "tags: {move: 10s}")}, nil)
		c.bind(newPod("p", "demo:1", mounting("example.com/rules:live"), bad("{crash: {after: 1m, times: 1}}")), "sim-0001")
		c.bind(newPod("q", "demo:1", mounting("example.com/rules@sha256:abc")), "sim-0001")
		first := c.pod("p").Status
		if is := of(first.ContainerStatuses[0]); !strings.HasPrefix(is, "example.com/rules@sha256:") || of(first.InitContainerStatuses[0]) != is {
			t.Errorf("the containers have %q and %q", is, of(first.InitContainerStatuses[0]))
		}
		c.pass(2 * time.Minute)
		now := c.pod("p").Status
		if now.ContainerStatuses[0].RestartCount == 0 || of(now.ContainerStatuses[0]) != of(first.ContainerStatuses[0]) {
			t.Errorf("the container has %q after %d restarts, want %q", of(now.ContainerStatuses[0]), now.ContainerStatuses[0].RestartCount,
				of(first.ContainerStatuses[0]))
		}
		if is := of(c.pod("q").Status.ContainerStatuses[0]); is != "example.com/rules@sha256:abc" {
			t.Errorf("the volume that names a digest is %q", is)
		}
	})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	object := newPod("p", "demo", mounting("example.com/rules:live"))
	object.Spec.NodeName = "n"
	of1 := func(faults string) *pod {
		return &pod{uid: "p", hostIPs: []string{"100.64.0.1"}, image: DefaultImages, imageID: plan(t, faults).ImageID,
			hasImage: func(string) bool { return false }, takeAddress: func() (string, error) { return "10.0.0.2", nil }}
	}
	status := of1("tags: {move: 10s}").step(object, false, now).status
	object.Status = *status
	again := of1("{seed: 7, tags: {move: 10s}}")
	again.restore(object)
	if got := again.step(object, false, now.Add(time.Minute)).status; got != nil && !equality.Semantic.DeepEqual(got, status) {
		t.Errorf("a simulator that starts again says\n%+v\nwant\n%+v", got, status)
	}
}
