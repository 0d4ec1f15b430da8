package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/testenv"
)

// idleImage is an image that nobody uses.
const idleImage = "everynode.test/unused:1"

// strained is a real node with a control plane that is about to be short of something.
type strained struct {
	*testenv.Env
	m *machine
}

// startStrained starts a node with the daemons keeper, which is important, and filler, which is not, and a pod that
// must not notice anything. The filler does its worst once.
func startStrained(t *testing.T, filler []string, options ...func(*config.Config)) *strained {
	t.Helper()
	s := &strained{m: newMachine(t)}
	s.m.importVariant(t, idleImage)
	// A disk of its own, small enough to be filled.
	podstest.Must(t, os.MkdirAll(s.m.dir+"/agent", 0o755))
	podstest.Must(t, syscall.Mount("tmpfs", s.m.dir+"/agent", "tmpfs", 0, "size=64m"))
	t.Cleanup(func() { _ = syscall.Unmount(s.m.dir+"/agent", syscall.MNT_DETACH) })
	s.Env = testenv.Start(t)
	startAgent(t, s.m, s.Env, joinToken(t, s.Env), append(options,
		func(c *config.Config) { c.PressureTransition = 3 * time.Second })...)
	for name, value := range map[string]int32{"low": 10, "high": 1000} {
		_, err := s.Client.SchedulingV1().PriorityClasses().Create(t.Context(),
			&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		podstest.Must(t, err)
	}
	podstest.Must(t, os.MkdirAll(s.m.dir+"/marks", 0o777))
	s.daemon(t, "keeper", "high", "sleep")
	s.Eventually("the keeper is there", func(ctx context.Context) error { return s.available(ctx, "keeper") })
	s.daemon(t, "filler", "low", filler...)
	return s
}

func (s *strained) daemon(t *testing.T, name, class string, args ...string) {
	t.Helper()
	labels := map[string]string{"app": name}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			PriorityClassName: class, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "main", Image: podstest.BoxImage, Args: args,
				VolumeMounts: []corev1.VolumeMount{
					{Name: "scratch", MountPath: "/scratch"}, {Name: "marks", MountPath: "/marks"}}}},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "marks", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: s.m.dir + "/marks"}}}},
		}},
	}}
	_, err := s.Client.AppsV1().DaemonSets("default").Create(t.Context(), ds, metav1.CreateOptions{})
	podstest.Must(t, err)
}

func (s *strained) available(ctx context.Context, name string) error {
	ds, err := s.Client.AppsV1().DaemonSets("default").Get(ctx, name, metav1.GetOptions{})
	if err == nil && ds.Status.NumberAvailable != 1 {
		err = fmt.Errorf("status %+v", ds.Status)
	}
	return err
}

// pressure says whether the node's condition, and the taint that comes with it, are as they should be.
func (s *strained) pressure(ctx context.Context, kind corev1.NodeConditionType, taint string, want bool) error {
	node, err := s.Client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		return err
	}
	under := slices.ContainsFunc(node.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
	tainted := slices.ContainsFunc(node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == taint && t.Effect == corev1.TaintEffectNoSchedule })
	if under != want || tainted != want {
		return fmt.Errorf("%s is %v and the taint %v: %+v, %+v", kind, under, tainted, node.Status.Conditions,
			node.Spec.Taints)
	}
	return nil
}

// told returns the event of the reason about the object, once there is one.
func (s *strained) told(kind, reason, text string) {
	s.Eventually("an event "+reason+" about "+text, func(ctx context.Context) error {
		list, err := s.Client.CoreV1().Events("default").List(ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.kind=" + kind + ",reason=" + reason})
		if err != nil {
			return err
		}
		var said []string
		for _, e := range list.Items {
			if strings.Contains(e.Message, text) {
				return nil
			}
			said = append(said, e.InvolvedObject.Name+": "+e.Message)
		}
		return fmt.Errorf("events %q", said)
	})
}

// unharmed fails the test if the keeper's pod was touched.
func (s *strained) unharmed(t *testing.T) {
	t.Helper()
	list, err := s.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=keeper"})
	podstest.Must(t, err)
	if len(list.Items) != 1 || !podstest.IsReady(&list.Items[0]) ||
		list.Items[0].Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the keeper was hurt: %+v", list.Items)
	}
	events, err := s.Client.CoreV1().Events("default").List(t.Context(),
		metav1.ListOptions{FieldSelector: "reason=Evicted"})
	podstest.Must(t, err)
	for _, e := range events.Items {
		if !strings.HasPrefix(e.InvolvedObject.Name, "filler-") {
			t.Errorf("%s: %s", e.InvolvedObject.Name, e.Message)
		}
	}
}

// TestAFullDisk lets a daemon fill the node's disk.
func TestAFullDisk(t *testing.T) {
	t.Parallel() // most of it is waiting
	s := startStrained(t, []string{"fill-once", "/marks/filled", "/scratch/data", "48"}, func(c *config.Config) {
		c.EvictionHard, c.ImageGCHigh = "nodefs.available<24Mi", 99
	})
	s.Eventually("the node says that its disk is full", func(ctx context.Context) error {
		return s.pressure(ctx, corev1.NodeDiskPressure, corev1.TaintNodeDiskPressure, true)
	})
	s.told("Node", "EvictionThresholdMet", "Attempting to reclaim ephemeral-storage")
	s.told("Pod", "Evicted", "The node was low on resource: ephemeral-storage. Threshold quantity: 24Mi, available: ")
	s.Eventually("the node says that it has room again", func(ctx context.Context) error {
		return s.pressure(ctx, corev1.NodeDiskPressure, corev1.TaintNodeDiskPressure, false)
	})
	s.Eventually("the filler is back", func(ctx context.Context) error { return s.available(ctx, "filler") })
	images, err := cri.ListImages(t.Context(), s.m.services.Images)
	podstest.Must(t, err)
	if slices.ContainsFunc(images, func(i cri.ImageInfo) bool { return slices.Contains(i.Names, idleImage) }) {
		t.Error("a pod was evicted and the image that nobody uses is still there")
	}
	s.unharmed(t)
}

// TestTooLittleMemory lets a daemon use so much memory that less than a soft threshold is left.
func TestTooLittleMemory(t *testing.T) {
	t.Parallel()
	s := startStrained(t, []string{"hold-once", "/marks/held", "200"}, func(c *config.Config) {
		limitMemory(t, c.CgroupRoot, 320<<20)
		c.EvictionHard, c.EvictionSoft = "memory.available<20Mi", "memory.available<160Mi"
		c.EvictionSoftGrace, c.EvictionMaxPodGrace = "memory.available=1s", 1
	})
	s.Eventually("the node says that it is short of memory", func(ctx context.Context) error {
		return s.pressure(ctx, corev1.NodeMemoryPressure, corev1.TaintNodeMemoryPressure, true)
	})
	s.told("Node", "EvictionThresholdMet", "Attempting to reclaim memory")
	s.told("Pod", "Evicted", "The node was low on resource: memory. Threshold quantity: 160Mi, available: ")
	s.told("Pod", "Evicted", "Container main was using 2")
	s.Eventually("the node says that it has memory again", func(ctx context.Context) error {
		return s.pressure(ctx, corev1.NodeMemoryPressure, corev1.TaintNodeMemoryPressure, false)
	})
	s.Eventually("the filler is back", func(ctx context.Context) error { return s.available(ctx, "filler") })
	s.unharmed(t)
}

// limitMemory gives the node no more memory than that.
func limitMemory(t *testing.T, cgroup string, bytes int) {
	t.Helper()
	path := "/sys/fs/cgroup/memory" + cgroup + "/memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		path = "/sys/fs/cgroup" + cgroup + "/memory.max"
		podstest.Must(t, os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0o644))
	}
	podstest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	podstest.Must(t, os.WriteFile(path, []byte(strconv.Itoa(bytes)), 0o644))
}
