// Package nodeinit is process 1 of a local node: it furnishes the node's namespaces before it becomes the pause
// program.
package nodeinit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/images"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/network"
)

// Where things are inside a node.
const (
	nodeBin              = "/run/everynode/bin"
	Executable           = nodeBin + "/everynode"
	nodePause            = nodeBin + "/pause"
	Registries           = "/run/everynode/registries"
	DataDir              = "/var/lib/everynode"
	ContainerdConfigFile = DataDir + "/containerd.toml"
	ContainerdSocket     = "/run/containerd/containerd.sock"
)

// Spec is what the supervisor tells a node's process 1.
type Spec struct {
	Name       string `json:"name"`
	Executable string `json:"executable"`
	// Binds maps folders of the host to where the node has them.
	Binds []Bind `json:"binds"`
	// Plugins is the machine's folder of CNI plugins.
	Plugins string `json:"plugins"`
}

// Bind is a folder of the host that a node has.
type Bind struct {
	From string `json:"from"`
	To   string `json:"to"`
	// ReadOnly is for folders that are not the node's own.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Report is what process 1 answers, before it becomes the pause program.
type Report struct {
	Error       string `json:"error,omitempty"`
	Snapshotter string `json:"snapshotter,omitempty"`
}

// Run is process 1 of a node, in namespaces that were made for it. It
// waits for its orders (which never come if the supervisor dies before it wrote
// down that this process exists), gives the node its folders, reports, and
// becomes the pause program. It only returns when something failed.
func Run(orders io.Reader, answers io.Writer) error {
	raw, err := io.ReadAll(orders)
	if err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	report := Report{}
	report.Snapshotter, err = spec.furnish()
	if err != nil {
		report.Error = err.Error()
	}
	if encodeErr := json.NewEncoder(answers).Encode(report); encodeErr != nil || err != nil {
		return errors.Join(err, encodeErr)
	}
	return becomePause()
}

// furnish makes the node's own view of the file system and returns the
// snapshotter that works on it.
func (s Spec) furnish() (string, error) {
	if os.Getpid() != 1 {
		return "", errors.New("not process 1 of a node; this command is for everynode itself")
	}
	pause, err := images.PauseProgram()
	if err != nil {
		return "", err
	}
	resolvConf, resolvErr := readResolvConf("/")
	// What the host unmounts goes here too, and nothing here reaches the host;
	// containers of the node share mounts among themselves.
	for _, flags := range []uintptr{unix.MS_REC | unix.MS_SLAVE, unix.MS_REC | unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", flags, ""); err != nil {
			return "", fmt.Errorf("set mount propagation: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return "", fmt.Errorf("mount /proc: %w", err)
	}
	if err := s.mountFolders(); err != nil {
		return "", err
	}
	if err := os.WriteFile(nodePause, pause, 0o755); err != nil {
		return "", fmt.Errorf("write the pause program: %w", err)
	}
	if resolvErr == nil {
		if err := keepResolvConf(resolvConf); err != nil {
			return "", err
		}
	}
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return "", fmt.Errorf("set host name: %w", err)
	}
	if err := os.WriteFile(network.ForwardingFile, []byte("1"), 0o644); err != nil {
		return "", fmt.Errorf("switch IPv4 forwarding on: %w", err)
	}
	snapshotter, err := probeSnapshotter(DataDir)
	if err != nil {
		return "", err
	}
	return snapshotter, offerPlugins(s.Plugins, CNIBin, pluginLayers)
}

// mountFolders mounts the node's own folders. The sources are opened first,
// because the mounts hide some of them.
func (s Spec) mountFolders() error {
	executable, err := openPath(s.Executable)
	if err != nil {
		return err
	}
	defer unix.Close(executable)
	sources := make([]int, 0, len(s.Binds))
	defer func() {
		for _, fd := range sources {
			_ = unix.Close(fd)
		}
	}()
	for _, b := range s.Binds {
		fd, err := openPath(b.From)
		if err != nil {
			return err
		}
		sources = append(sources, fd)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	for _, dir := range []string{nodeBin, Registries, "/run/lock", network.NetnsDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	for i, b := range s.Binds {
		if err := bindFD(sources[i], b.To, b.ReadOnly); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(DataDir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", DataDir, err)
	}
	if err := os.WriteFile(Executable, nil, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", Executable, err)
	}
	return bindFD(executable, Executable, false)
}

func openPath(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

func bindFD(fd int, to string, readOnly bool) error {
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the node's own %s: %w", to, err)
	}
	if !readOnly {
		return nil
	}
	// A bind takes no other flags when it is made.
	if err := unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make the node's %s read-only: %w", to, err)
	}
	return nil
}

// readResolvConf reads the host's resolver file below root. Where systemd-resolved
// answers on the host's loopback interface, that is the file with the name servers
// that it asks itself: a node has a loopback interface of its own.
func readResolvConf(root string) ([]byte, error) {
	path := filepath.Join(root, "etc/resolv.conf")
	resolved := filepath.Join(root, "run/systemd/resolve")
	if target, err := os.Readlink(path); err == nil && filepath.Base(target) == "stub-resolv.conf" {
		if content, err := os.ReadFile(filepath.Join(resolved, "resolv.conf")); err == nil {
			return content, nil
		}
	}
	return os.ReadFile(path)
}

// keepResolvConf restores /etc/resolv.conf where it is a link into the host's
// /run, as systemd-resolved makes it: containerd copies it into pods.
func keepResolvConf(content []byte) error {
	const path = "/etc/resolv.conf"
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	target, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("follow %s: %w", path, err)
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(path), target)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("restore %s: %w", path, err)
	}
	if err := os.WriteFile(target, content, 0o644); err != nil {
		return fmt.Errorf("restore %s: %w", path, err)
	}
	return nil
}

// probeSnapshotter tries whether folders below dir can be stacked: on a file
// system that is itself an overlay, as in a container, they cannot.
func probeSnapshotter(dir string) (string, error) {
	probe, err := os.MkdirTemp(dir, ".probe-")
	if err != nil {
		return "", fmt.Errorf("probe for overlayfs: %w", err)
	}
	defer os.RemoveAll(probe)
	at := func(name string) string { return filepath.Join(probe, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(at(name), 0o755); err != nil {
			return "", fmt.Errorf("probe for overlayfs: %w", err)
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", at("lower"), at("upper"), at("work"))
	if err := unix.Mount("overlay", at("merged"), "overlay", 0, options); err != nil {
		return "native", nil
	}
	if err := unix.Unmount(at("merged"), 0); err != nil {
		return "", fmt.Errorf("probe for overlayfs: %w", err)
	}
	return "overlayfs", nil
}

// becomePause lets go of the supervisor's pipes and becomes the pause program.
// The pipe for answers closes with the exec itself, which tells the supervisor
// that the node's process 1 is what it will be.
func becomePause() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	if _, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		return fmt.Errorf("keep the pipe for answers: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return fmt.Errorf("let go of file %d: %w", fd, err)
		}
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("change to /: %w", err)
	}
	return fmt.Errorf("become the pause program: %w",
		unix.Exec(nodePause, []string{"pause"}, []string{layout.MarkName + os.Getenv(strings.TrimSuffix(layout.MarkName,
			"="))}))
}
