package agent

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/testenv/needs"
)

const (
	pauseImage = "everynode.test/pause:1"
)

// machine is a containerd of a test's own, in a network namespace of its own.
type machine struct {
	dir, endpoint, cgroupRoot string
	services                  cri.Services
	// runtime is containerd's process, and exited closed once it has ended.
	runtime *os.Process
	exited  <-chan struct{}
}

const containerdConfig = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
oom_score = 0
[grpc]
  address = "%[1]s/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[1]s/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/opt"
`

const cniConfig = `{"cniVersion": "0.4.0", "name": "test", "plugins": [
  {"type": "bridge", "bridge": "test0", "isGateway": true,
   "ipam": {"type": "host-local", "dataDir": "%[1]s/ipam", "ranges": [[{"subnet": "10.99.0.0/24"}]]}}]}
`

// newMachine starts a containerd with the test images, and takes everything away at the end of the test.
func newMachine(t *testing.T) *machine {
	t.Helper()
	needs.Root(t, "needs root, to run containers")
	for _, tool := range []string{"containerd", "runc", "ctr", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	// A socket's path must be short: t.TempDir's is too long.
	dir, err := os.MkdirTemp("", "agent-test-")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{dir: dir, endpoint: "unix://" + dir + "/containerd.sock", cgroupRoot: "/" + filepath.Base(dir)}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the machine's files: %v", err)
		}
	})
	m.write(t, "config.toml", fmt.Sprintf(containerdConfig, dir))
	m.write(t, "cni/test.conflist", fmt.Sprintf(cniConfig, dir))
	m.start(t)
	m.importImage(t, pauseImage, podstest.BoxImage)
	return m
}

func (m *machine) write(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(m.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) start(t *testing.T) {
	t.Helper()
	logFile, err := os.Create(filepath.Join(m.dir, "containerd.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--net", "containerd", "--config", filepath.Join(m.dir, "config.toml"))
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := m.runtime == nil
	m.runtime = cmd.Process
	exited := make(chan struct{})
	m.exited = exited
	go func() {
		_ = cmd.Wait()
		_ = logFile.Close()
		close(exited)
	}()
	if first {
		t.Cleanup(func() { m.end(t) })
	}
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		services, err := cri.Connect(ctx, m.endpoint)
		cancel()
		if err == nil {
			m.services = services
			break
		}
		select {
		case <-exited:
			text, _ := os.ReadFile(logFile.Name())
			t.Fatalf("containerd ended:\n%s", tailOf(string(text), 4000))
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("containerd did not start in time")
		}
	}
}

// end ends all that runs on the machine. It comes after the end of what was started there, also where containerd was
// started once more since.
func (m *machine) end(t *testing.T) {
	if t.Failed() {
		text, _ := os.ReadFile(filepath.Join(m.dir, "containerd.log"))
		t.Logf("containerd said last:\n%s", tailOf(string(text), 4000))
	}
	m.sweep(t)
	_ = m.runtime.Signal(syscall.SIGTERM)
	<-m.exited
	for _, pid := range m.ownProcesses() { // such as the shim of a sandbox that was being made
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	m.removeCgroups(t)
	m.unmount(t)
}

func tailOf(s string, n int) string { return s[max(0, len(s)-n):] }

// sweep removes every sandbox, and so every container and process that the test made.
func (m *machine) sweep(t *testing.T) {
	if m.services.Runtime == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := m.services.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		t.Errorf("list what the test left: %v", err)
	}
	for _, s := range list {
		if err := m.services.Runtime.StopPodSandbox(ctx, s.Id); err != nil {
			t.Errorf("stop a sandbox that the test left: %v", err)
		}
		if err := m.services.Runtime.RemovePodSandbox(ctx, s.Id); err != nil {
			t.Errorf("remove a sandbox that the test left: %v", err)
		}
	}
	m.services.Close(ctx)
	m.services = cri.Services{}
}

// reboot has the machine lose what a machine loses that is switched off: every process and mount. What is on its disk
// stays.
func (m *machine) reboot(t *testing.T) {
	t.Helper()
	m.services.Close(t.Context())
	podstest.Eventually(t, "every process of the machine has ended", func() bool {
		left := append(m.ownProcesses(), m.containerProcesses()...)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
	m.unmount(t)
	m.start(t)
}

// restartRuntime kills containerd, and starts it again once between was called. Containers run on, unless between ends
// them.
func (m *machine) restartRuntime(t *testing.T, between func()) {
	t.Helper()
	m.services.Close(t.Context())
	podstest.Must(t, m.runtime.Kill())
	<-m.exited
	between()
	m.start(t)
}

// ownProcesses are the runtime and its helpers.
func (m *machine) ownProcesses() (pids []int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		text, err := os.ReadFile(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && pid != os.Getpid() && bytes.Contains(text, []byte(m.dir+"/")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// containerProcesses are those in cgroups of pods.
func (m *machine) containerProcesses() (pids []int) {
	for _, root := range append(globbed("/sys/fs/cgroup/*"+m.cgroupRoot), "/sys/fs/cgroup"+m.cgroupRoot) {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() != "cgroup.procs" {
				return nil
			}
			text, _ := os.ReadFile(path)
			for _, field := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(field); err == nil {
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}

func globbed(pattern string) []string {
	paths, _ := filepath.Glob(pattern)
	return paths
}

func (m *machine) removeCgroups(t *testing.T) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*" + m.cgroupRoot)
	roots = append(roots, "/sys/fs/cgroup"+m.cgroupRoot)
	for _, root := range roots {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := os.Remove(dirs[i]); err != nil {
				t.Errorf("remove a cgroup that the test left: %v", err)
			}
		}
	}
}

// unmount unmounts what pods that the test did not delete left mounted.
func (m *machine) unmount(t *testing.T) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Errorf("read the mounts: %v", err)
	}
	var points []string
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], m.dir+"/") {
			points = append(points, fields[4])
		}
	}
	for i := len(points) - 1; i >= 0; i-- {
		if err := syscall.Unmount(points[i], syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", points[i], err)
		}
	}
}

// importImage builds the box program and imports it under the names.
func (m *machine) importImage(t *testing.T, names ...string) {
	t.Helper()
	binary := filepath.Join(m.dir, "box")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "./testdata/box")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the box program: %v\n%s", err, out)
	}
	images := map[name.Tag]v1.Image{}
	for _, n := range names {
		tag, err := name.NewTag(n)
		if err != nil {
			t.Fatal(err)
		}
		images[tag] = boxImageOf(t, binary)
	}
	archive := filepath.Join(m.dir, "images.tar")
	if err := tarball.MultiWriteToFile(archive, images); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ctr", "-a", filepath.Join(m.dir, "containerd.sock"), "-n", "k8s.io", "images", "import",
		archive).CombinedOutput()
	if err != nil {
		t.Fatalf("import the images: %v\n%s", err, out)
	}
}

func boxImageOf(t *testing.T, binary string) v1.Image {
	t.Helper()
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []*tar.Header{
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o777}, {Name: "box", Mode: 0o755, Size: int64(len(program))},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(program); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser,
		error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.Config(image, v1.Config{Entrypoint: []string{"/box"}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.OS, config.Architecture = "linux", goarch(t)
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func goarch(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOARCH").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
