package measure

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/diskuse"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

// gauged is a node on which each pod has a folder of everything.
type gauged struct {
	root string
	err  error
}

func (g gauged) Stats(context.Context, types.UID) ([]cri.ContainerStats, error) {
	return []cri.ContainerStats{{PodUID: "uid-good", Container: "main", Layer: 1, Memory: 2}}, g.err
}
func (gauged) Processes(*corev1.Pod) int64 { return 3 }
func (g gauged) LogDirectory(pod *corev1.Pod) string {
	return filepath.Join(g.root, pod.Name, "logs")
}
func (g gauged) OwnFiles(uid types.UID) string { return filepath.Join(g.root, string(uid)) }
func (g gauged) EmptyDirs(pod *corev1.Pod) map[string]string {
	return map[string]string{"scratch": filepath.Join(g.root, pod.Name, "scratch")}
}

// A pod that cannot be measured hides neither the others nor what else is known of it.
func TestOnePodHidesNoOther(t *testing.T) {
	g := gauged{root: t.TempDir()}
	for _, dir := range []string{"good/scratch", "bad/logs/main", "uid-good"} {
		podstest.Must(t, os.MkdirAll(filepath.Join(g.root, dir), 0o755))
	}
	podstest.Must(t, os.WriteFile(filepath.Join(g.root, "bad/scratch"), nil, 0o600)) // a file where a folder should be
	for _, file := range []string{"good/scratch/file", "bad/logs/main/0.log", "uid-good/etc-hosts"} {
		podstest.Must(t, os.WriteFile(filepath.Join(g.root, file), make([]byte, 1<<20), 0o600))
	}
	meter := Gauge{Runtime: g, Volumes: g, Meter: diskuse.NewMeter(clock.RealClock{})}
	list := []*corev1.Pod{podstest.Pod("bad"), podstest.Pod("good")}
	got, err := meter.Pods(t.Context(), list, time.Minute)
	if err == nil || len(got) != 2 {
		t.Fatalf("measured %d pods, %v; want two, and what is wrong", len(got), err)
	}
	if bad := got[0]; bad.Disk < 1<<20 || bad.Processes != 3 {
		t.Errorf("of the bad one there is %+v, want its log", bad)
	}
	// Its volume and the file that it can write in spite of that.
	if good := got[1]; good.Disk < 2<<20 || good.Volumes["scratch"] < 1<<20 || good.Memory != 2 {
		t.Errorf("of the good one there is %+v", good)
	}
	g.err = errors.New("no runtime")
	meter.Runtime = g
	if got, err := meter.Pods(t.Context(), list, time.Minute); !errors.Is(err, g.err) || len(got) != 2 ||
		got[1].Volumes["scratch"] < 1<<20 {
		t.Errorf("without the runtime: %+v, %v", got, err)
	}
	if got, err := meter.Pods(t.Context(), list, 0); !errors.Is(err, g.err) || len(got) != 0 {
		t.Errorf("without the runtime and the disk: %+v, %v", got, err)
	}
}

// Sidecars write as long as the pod runs. Other init containers only begin it.
func TestLogsOfSidecarsCount(t *testing.T) {
	g := gauged{root: t.TempDir()}
	pod := podstest.Pod("good")
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "first"}, {Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	for name, size := range map[string]int{"first": 4 << 20, "proxy": 2 << 20, "main": 1 << 20} {
		dir := filepath.Join(g.root, "good/logs", name)
		podstest.Must(t, os.MkdirAll(dir, 0o755))
		podstest.Must(t, os.WriteFile(filepath.Join(dir, "0.log"), make([]byte, size), 0o600))
	}
	for _, dir := range []string{"good/scratch", "uid-good"} {
		podstest.Must(t, os.MkdirAll(filepath.Join(g.root, dir), 0o755))
	}
	meter := Gauge{Runtime: g, Volumes: g, Meter: diskuse.NewMeter(clock.RealClock{})}
	got, err := meter.Pods(t.Context(), []*corev1.Pod{pod}, time.Minute)
	podstest.Must(t, err)
	if u := got[0]; u.Containers["proxy"].Disk < 2<<20 || u.Disk < 3<<20 || u.Disk >= 4<<20 {
		t.Errorf("the logs of a sidecar and a container take %+v", u)
	}
}
