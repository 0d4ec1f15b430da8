package eviction

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestParse(t *testing.T) {
	got, err := Parse(Default)
	if err != nil || len(got) != 5 || got[0] != (Threshold{Signal: MemoryAvailable, Amount: 100 << 20}) || got[1] != (Threshold{Signal: NodeFSAvailable, Part: 0.1}) {
		t.Errorf("the default is read as %+v, %v", got, err)
	}
	if got, err := Parse(None); err != nil || len(got) != 0 {
		t.Errorf("none is read as %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                "not of the form",
		"memory.available":                "not of the form",
		"memory.available<":               "not of the form",
		"swap.available<1Gi":              `unknown signal "swap.available"`,
		"memory.available<lots":           "lots is not an amount",
		"memory.available<-1":             "-1 is not an amount",
		"memory.available<100%":           "not a percentage",
		"memory.available<x%":             "not a percentage",
		"pid.available<1,pid.available<2": "pid.available has two thresholds",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestCrossed(t *testing.T) {
	list, err := Parse("nodefs.available<10%,memory.available<100Mi,nodefs.inodesFree<5%")
	if err != nil {
		t.Fatal(err)
	}
	plenty := Observations{MemoryAvailable: {100 << 20, 1 << 30}, NodeFSAvailable: {10, 100}, NodeFSInodesFree: {0, 0}}
	if got := new(Watch).Look(&Rules{Hard: list}, plenty, time.Time{}); len(got) != 0 {
		t.Errorf("exactly enough is too little: %+v", got)
	}
	short := Observations{MemoryAvailable: {100<<20 - 1, 1 << 30}, NodeFSAvailable: {9, 100}}
	got := new(Watch).Look(&Rules{Hard: list}, short, time.Time{})
	if len(got) != 2 || got[0].Threshold.Signal != MemoryAvailable || got[1].Threshold.Signal != NodeFSAvailable {
		t.Errorf("crossed %+v, want memory first, then nodefs", got)
	}
	if list.Keep(NodeFSAvailable, 1000) != 100 || list.Keep(MemoryAvailable, 1<<30) != 100<<20 || list.Keep(PIDAvailable, 100) != 0 {
		t.Error("what is kept from pods is not what the thresholds say")
	}
}

type spec struct {
	name     string
	priority *int32
	request  string
	limit    string
	used     int64
	static   bool
}

func (s spec) usage() Usage {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.name, UID: types.UID(s.name)}}
	pod.Spec.Priority = s.priority
	c := corev1.Container{Name: "main"}
	if s.request != "" {
		q := resource.MustParse(s.request)
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: q, corev1.ResourceEphemeralStorage: q}
	}
	if s.limit != "" {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(s.limit)}
	}
	pod.Spec.Containers = []corev1.Container{c}
	return Usage{Pod: pod, Static: s.static, Memory: s.used, Disk: s.used, Inodes: s.used, Processes: s.used,
		Containers: map[string]ContainerUsage{"main": {Memory: s.used, Disk: s.used}}}
}

func crossing(s Signal) Crossing {
	return Crossing{Threshold{Signal: s, Amount: 100 << 20}, Observation{Available: 50 << 20, Capacity: 1 << 30}, false}
}

func TestVictim(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		signal Signal
		pods   []spec
		want   string
	}{
		"who uses more than it asked for goes first": {MemoryAvailable, []spec{
			{name: "modest", request: "20Mi", used: 19 * mib, priority: ptr.To[int32](-5)}, {name: "greedy", request: "1Mi", used: 2 * mib, priority: ptr.To[int32](100)}}, "greedy"},
		"then the lower priority": {MemoryAvailable, []spec{
			{name: "high", used: 90 * mib, priority: ptr.To[int32](10)}, {name: "low", used: 1 * mib, priority: ptr.To[int32](1)}}, "low"},
		"then who is further above its request": {MemoryAvailable, []spec{
			{name: "a", request: "50Mi", used: 60 * mib}, {name: "b", used: 20 * mib}}, "b"},
		"on the disk alike":        {NodeFSAvailable, []spec{{name: "a", used: 1 * mib}, {name: "b", used: 2 * mib}}, "b"},
		"processes":                {PIDAvailable, []spec{{name: "a", used: 1}, {name: "b", used: 2}}, "b"},
		"inodes":                   {ImageFSInodesFree, []spec{{name: "a", used: 3}, {name: "b", used: 2}}, "a"},
		"critical pods stay":       {MemoryAvailable, []spec{{name: "critical", used: 90 * mib, priority: ptr.To[int32](2000000000)}, {name: "b", request: "9Mi", used: 1}}, "b"},
		"static pods stay":         {MemoryAvailable, []spec{{name: "static", used: 90 * mib, static: true}}, ""},
		"a tie is broken the same": {MemoryAvailable, []spec{{name: "y", used: 1}, {name: "x", used: 1}}, "x"},
		"no pods":                  {MemoryAvailable, nil, ""},
	} {
		var pods []Usage
		for _, p := range c.pods {
			pods = append(pods, p.usage())
		}
		got := ""
		if v := Victim(crossing(c.signal), pods); v != nil {
			got = v.Pod.Name
		}
		if got != c.want {
			t.Errorf("%s: %q goes, want %q", name, got, c.want)
		}
	}
}

func TestMessage(t *testing.T) {
	u := spec{name: "a", request: "10Mi", used: 30 << 20}.usage()
	const want = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. " +
		"Container main was using 30Mi, request is 10Mi, has larger consumption of memory. "
	if got := Message(crossing(MemoryAvailable), &u); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	modest := spec{name: "a", request: "40Mi", used: 30 << 20}.usage()
	percent := Crossing{Threshold{Signal: NodeFSAvailable, Part: 0.1}, Observation{Available: 5 << 10, Capacity: 100 << 10}, false}
	if got, want := Message(percent, &modest), "The node was low on resource: ephemeral-storage. Threshold quantity: 10%, available: 5Ki. "; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestExceeded(t *testing.T) {
	limited := spec{name: "a", limit: "10Mi", used: 5 << 20}.usage()
	if got := Exceeded(&limited); got != "" || !Limited(limited.Pod) {
		t.Errorf("half of the limit: %q", got)
	}
	over := spec{name: "a", limit: "10Mi", used: 11 << 20}.usage()
	if got, want := Exceeded(&over), "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	limited.Unmeasured = `EmptyDir volume "scratch"`
	if got, want := Exceeded(&limited), `Usage of EmptyDir volume "scratch" cannot be measured against its limit: folders are nested too deep. `; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	unlimited := spec{name: "a"}.usage()
	unlimited.Unmeasured = limited.Unmeasured
	if got := Exceeded(&unlimited); got != "" {
		t.Errorf("a pod without limits is above one: %q", got)
	}
	// The pod as a whole is below the sum of the limits; one container is above its own.
	one := spec{name: "a", limit: "10Mi", used: 11 << 20}.usage()
	one.Pod.Spec.Containers = append(one.Pod.Spec.Containers, one.Pod.Spec.Containers[0])
	one.Pod.Spec.Containers[1].Name = "other"
	if got, want := Exceeded(&one), `Container main exceeded its local ephemeral storage limit "10Mi". `; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	sidecar := spec{name: "a", limit: "1Gi", used: 1600 << 20}.usage()
	sidecar.Containers = map[string]ContainerUsage{"main": {Disk: 100 << 20}, "beside": {Disk: 1500 << 20}}
	sidecar.Pod.Spec.InitContainers = []corev1.Container{{Name: "beside", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("2Gi")}}}}
	if got := Exceeded(&sidecar); got != "" {
		t.Errorf("a pod whose sidecar and container keep their limits: %q", got)
	}
	volume := spec{name: "a"}.usage()
	volume.Pod.Spec.Volumes = []corev1.Volume{
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("1"))}}},
		{Name: "free", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	volume.Volumes = map[string]int64{"memory": 99, "free": 99, "scratch": 5 << 20}
	if Limited(volume.Pod) {
		t.Error("a pod without limits on the disk counts as limited")
	}
	volume.Pod.Spec.Volumes = append(volume.Pod.Spec.Volumes, corev1.Volume{Name: "scratch",
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("4Mi"))}}})
	if got, want := Exceeded(&volume), `Usage of EmptyDir volume "scratch" exceeds the limit "4Mi". `; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
