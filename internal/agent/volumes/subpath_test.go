package volumes

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/volumes/removal"
)

func itoa(n uintptr) string { return strconv.Itoa(int(n)) }

func hostPathPod(path string) *corev1.Pod {
	return podWith(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}})
}

func TestSubPathOfConfigMap(t *testing.T) {
	m, objects := newTest(t)
	objects.setConfigMap("c", map[string]string{"site.conf": "one"})
	pod := podWith(configMapVolume("c"))
	setUp(t, m, pod)
	mount := corev1.VolumeMount{SubPath: "site.conf", MountPath: "/etc/site.conf", ReadOnly: true}
	first := mountOf(t, m, pod, mount)
	if !first.ReadOnly {
		t.Error("the mount is writable")
	}
	wantFile(t, first.HostPath, "one")
	if again := hostPath(t, m, pod, mount); again != first.HostPath || countMounts(t, again) != 1 {
		t.Errorf("mounted %d times at %s", countMounts(t, again), again)
	}

	// A running container keeps its file; the next one gets the new content.
	objects.setConfigMap("c", map[string]string{"site.conf": "two"})
	setUp(t, m, pod)
	wantFile(t, first.HostPath, "one")
	wantFile(t, hostPath(t, m, pod, mount), "two")
	if countMounts(t, first.HostPath) != 1 {
		t.Error("the old mount is still below the new one")
	}
	if err := m.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	gone(t, m.podDir(pod.UID))
}

// countMounts counts the mounts on a path, those that others cover included.
func countMounts(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, line := range splitLines(string(data)) {
		if len(line) > 4 && line[4] == path {
			count++
		}
	}
	return count
}

func TestSubPathDirectories(t *testing.T) {
	m, _ := newTest(t)
	host := t.TempDir()
	mkdir(t, host, "data/deep")
	put(t, host, "data/deep/file", "found")
	link(t, "data/deep", host, "inside")
	link(t, filepath.Join(host, "data"), host, "absolute")
	if err := unix.Chmod(host, 0o2770); err != nil {
		t.Fatal(err)
	}
	pod := hostPathPod(host)
	setUp(t, m, pod)
	for _, sub := range []string{"data/deep", "inside", "absolute/deep", "./data//deep/"} {
		wantFile(t, filepath.Join(hostPath(t, m, pod, corev1.VolumeMount{SubPath: sub}), "file"), "found")
	}
	wantFile(t, hostPath(t, m, pod, corev1.VolumeMount{SubPath: "inside/file"}), "found")

	made := hostPath(t, m, pod, corev1.VolumeMount{SubPathExpr: "logs/$(POD)"})
	put(t, made, "line", "text")
	wantFile(t, filepath.Join(host, "logs/p/line"), "text")
	wantMode(t, filepath.Join(host, "logs/p"), 0o2770, 0, 0)
	viaLink := hostPath(t, m, pod, corev1.VolumeMount{SubPath: "inside/new/er"})
	put(t, viaLink, "x", "y")
	wantFile(t, filepath.Join(host, "data/deep/new/er/x"), "y")

	if err := m.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	gone(t, m.podDir(pod.UID))
	wantFile(t, filepath.Join(host, "data/deep/file"), "found")
	wantFile(t, filepath.Join(host, "logs/p/line"), "text")
}

func TestSubPathCannotEscape(t *testing.T) {
	m, _ := newTest(t)
	top := t.TempDir()
	host := filepath.Join(top, "volume")
	mkdir(t, top, "volume")
	mkdir(t, top, "secret")
	mkdir(t, top, "volume-sibling")
	put(t, host, "file", "plain")
	link(t, "../secret", host, "out")
	link(t, filepath.Join(top, "secret"), host, "absolute")
	link(t, "out", host, "twice")
	link(t, "../secret/nothing", host, "dangling")
	link(t, "../volume-sibling", host, "sibling")
	link(t, "loop", host, "loop")
	link(t, "/proc/self/root", host, "magic")
	pod := hostPathPod(host)
	setUp(t, m, pod)
	bad := []corev1.VolumeMount{
		{SubPath: "../secret"}, {SubPath: "a/../../secret"}, {SubPath: "/etc"}, {SubPath: ".."},
		{SubPath: "out"}, {SubPath: "out/new"}, {SubPath: "absolute"}, {SubPath: "absolute/new"}, {SubPath: "twice"},
		{SubPath: "dangling"}, {SubPath: "dangling/new"}, {SubPath: "sibling"}, {SubPath: "loop"}, {SubPath: "magic/etc"}, {SubPath: "file/below"},
		{SubPathExpr: "$(UP)/secret"}, {SubPathExpr: "$(MISSING)"}, {SubPathExpr: "$(NONE)"},
	}
	for _, mount := range bad {
		mount.Name = "v"
		mounts, err := m.Mounts(t.Context(), pod, &corev1.Container{Name: "main", VolumeMounts: []corev1.VolumeMount{mount}})
		if err == nil {
			t.Errorf("%s%s gives the mount %v", mount.SubPath, mount.SubPathExpr, mounts)
		}
	}
	entries, err := os.ReadDir(filepath.Join(top, "secret"))
	if err != nil || len(entries) != 0 {
		t.Errorf("outside of the volume there is now %v, %v", entries, err)
	}
}

// TestLinkSwappedMeanwhile swaps a directory for a link out of the volume between resolving and opening.
func TestLinkSwappedMeanwhile(t *testing.T) {
	top := t.TempDir()
	mkdir(t, top, "volume")
	mkdir(t, top, "secret")
	link(t, "../secret", filepath.Join(top, "volume"), "dir")
	root, err := unix.Open(filepath.Join(top, "volume"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFD(root)
	if _, err := openBeneath(root, "dir", unix.RESOLVE_NO_SYMLINKS); !errors.Is(err, unix.ELOOP) {
		t.Errorf("opening a link that was a directory before gives %v", err)
	}
	if _, err := openBeneath(root, "dir", 0); !errors.Is(err, unix.EXDEV) {
		t.Errorf("opening a link that leads out gives %v", err)
	}
	if _, err := makeAt(root, "dir", 0o755); err == nil {
		t.Error("a link counts as the directory that should be made")
	}
}

func TestMountErrors(t *testing.T) {
	m, _ := newTest(t)
	pod := hostPathPod("/tmp")
	mount := func(v corev1.VolumeMount) error {
		_, err := m.Mounts(t.Context(), pod, &corev1.Container{Name: "main", VolumeMounts: []corev1.VolumeMount{v}})
		return err
	}
	wantError(t, mount(corev1.VolumeMount{Name: "other"}), `cannot find volume "other" to mount into container "main"`)
	enabled := corev1.RecursiveReadOnlyEnabled
	if got := mountOf(t, m, pod, corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &enabled}); got.RecursiveReadOnly != enabled || !got.ReadOnly {
		t.Errorf("mount %+v, want one that is read-only with all below it", got)
	}
	both := corev1.MountPropagationBidirectional
	if got := mountOf(t, m, pod, corev1.VolumeMount{MountPropagation: &both}); got.Propagation != both || got.ReadOnly {
		t.Errorf("mount %+v, want a writable one with propagation", got)
	}
}

func TestTearDownSparesTheHost(t *testing.T) {
	m, _ := newTest(t)
	host := t.TempDir()
	put(t, host, "precious", "x")
	dir := m.podDir("uid-1")
	mkdir(t, dir, "volumes/kubernetes.io~empty-dir/v")
	put(t, dir, "volumes/kubernetes.io~empty-dir/v/odd\nname", "x")
	target := filepath.Join(dir, "volumes/kubernetes.io~empty-dir/v/bound")
	mkdir(t, target, "")
	link(t, host, filepath.Join(dir, "volumes"), "link")
	for range 2 { // twice, one above the other
		if err := unix.Mount(host, target, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := removal.Tree(dir); err == nil {
		t.Error("removing goes into a mount")
	}
	wantFile(t, filepath.Join(host, "precious"), "x")
	if err := m.TearDown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	gone(t, dir)
	wantFile(t, filepath.Join(host, "precious"), "x")
}

func TestSweep(t *testing.T) {
	m, objects := newTest(t)
	if err := m.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Errorf("sweeping before there is anything: %v", err)
	}
	objects.secrets["s"] = &corev1.Secret{}
	for _, uid := range []types.UID{"live", "dead"} {
		pod := podWith(secretVolume("s"))
		pod.UID = uid
		setUp(t, m, pod)
	}
	// As after a restart of the agent: nothing is remembered.
	m.pods = map[types.UID]*podState{}
	if err := m.Sweep(t.Context(), func(uid types.UID) bool { return uid == "live" }); err != nil {
		t.Fatal(err)
	}
	gone(t, m.podDir("dead"))
	if mounted, err := isMount(m.volumeDir("live", "secret", "v")); err != nil || !mounted {
		t.Errorf("the living pod's secret is mounted: %v, %v", mounted, err)
	}
}

// splitLines splits a table into its fields.
func splitLines(table string) [][]string {
	var lines [][]string
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}
