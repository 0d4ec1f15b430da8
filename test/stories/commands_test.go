package stories

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// refused runs a command that must fail: with one line that holds every one of
// the texts, what is wrong and what to do, and without a trace of the insides.
func refused(t *testing.T, cmd *exec.Cmd, texts ...string) {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := runWithin(cmd)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v ended with %v, want exit code 1; it said:\n%s", cmd.Args[1:], err, &complaint)
		return
	}
	text := complaint.String()
	if strings.Count(text, "\n") != 1 || len(text) > 700 {
		t.Errorf("%v: want one line of complaint, got:\n%s", cmd.Args[1:], text)
	}
	for _, bad := range []string{"panic", "goroutine", "nil pointer", "runtime error"} {
		if strings.Contains(text, bad) {
			t.Errorf("%v: the complaint shows the insides (%s):\n%s", cmd.Args[1:], bad, text)
		}
	}
	for _, want := range texts {
		if !strings.Contains(text, want) {
			t.Errorf("%v: the complaint lacks %q:\n%s", cmd.Args[1:], want, text)
		}
	}
}

// runWithin runs a command, and ends it if it goes on for far too long.
func runWithin(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }).Stop()
	return cmd.Wait()
}

// unchanged fails the test if a folder holds other files at its end.
func unchanged(t *testing.T, dir string) {
	t.Helper()
	list := func() string {
		var names []string
		_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
			names = append(names, path)
			return nil
		})
		return strings.Join(names, "\n")
	}
	before := list()
	t.Cleanup(func() {
		if after := list(); after != before {
			t.Errorf("%s held\n%s\nand now holds\n%s", dir, before, after)
		}
	})
}

func TestUnknownWords(t *testing.T) {
	binary := needs.Everynode(t, "../..")
	for _, c := range []struct {
		args string
		want []string
	}{
		{"nosuch", []string{`unknown command "nosuch"`, "--help"}},
		{"token nosuch", []string{`unknown command "nosuch"`, "everynode token --help"}},
		{"image nosuch", []string{`unknown command "nosuch"`, "everynode image --help"}},
		{"--nosuch", []string{"unknown flag: --nosuch", "--help"}},
		{"up --nosuch", []string{"unknown flag: --nosuch", "everynode up --help"}},
		{"server --listen", []string{"needs an argument", "everynode server --help"}},
		{"up extra", []string{"takes no argument", `"extra"`}},
		{"down extra", []string{"takes no argument", `"extra"`}},
		{"image import", []string{"takes one argument", "the archive"}},
		{"image import a b", []string{"takes one argument", "got 2"}},
		{"up --nodes none", []string{`"none"`, "--nodes", "--help"}},
		{"up --nodes 0", []string{"at least one node"}},
		{"up --runtime docker", []string{`"docker"`, "containerd or simulated"}},
		{"up --api-port 70000", []string{"70000", "65535"}},
		{"up --data-dir=", []string{"no folder is named", "--data-dir"}},
		{"down --purge --data-dir=", []string{"no folder is named", "--data-dir"}},
		{"token create --ttl soon", []string{`"soon"`, "--ttl"}},
		{"server --listen here", []string{"here", "IP:PORT"}},
		{"server --listen 192.0.2.1:6443", []string{"192.0.2.1", "does not belong to this machine"}},
		{"server --service-cidr x", []string{`"x"`, "10.96.0.0/16"}},
		{"kubectl get pods", []string{"no cluster is found", "everynode up", "--data-dir"}},
		{"token create", []string{"no cluster is found", "everynode up", "--data-dir"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			home := t.TempDir()
			unchanged(t, home)
			args := strings.Fields(c.args)
			if dir := filepath.Join(home, "below", "data"); !strings.Contains(c.args, "nosuch") && !strings.Contains(c.args, "--data-dir") && !strings.HasSuffix(c.args, "--listen") {
				n := 1
				if args[0] == "token" || args[0] == "image" {
					n = 2
				}
				args = append(append(append([]string{}, args[:n]...), "--data-dir", dir), args[n:]...)
			}
			cmd := exec.Command(binary, args...)
			cmd.Dir = home
			refused(t, cmd, c.want...)
		})
	}
}

func TestDataDirThatCannotBeWritten(t *testing.T) {
	binary, base := needs.Everynode(t, "../.."), t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dirs := []string{file, filepath.Join(file, "below")}
	if os.Geteuid() == 0 {
		sealed := filepath.Join(base, "sealed")
		if err := os.Mkdir(sealed, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", sealed, "tmpfs", syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(sealed, 0) })
		dirs = append(dirs, sealed, filepath.Join(sealed, "a", "b"))
	}
	unchanged(t, base)
	for _, dir := range dirs {
		for _, args := range [][]string{{"up"}, {"up", "--detach"}, {"up", "--runtime", "simulated"}, {"server"}} {
			refused(t, exec.Command(binary, append(args, "--data-dir", dir)...), dir[:len(base)+5], "--data-dir")
		}
	}
	refused(t, exec.Command(binary, "down", "--data-dir", file), file, "--data-dir")
}

func TestPortInUse(t *testing.T) {
	binary, base := needs.Everynode(t, "../.."), t.TempDir()
	unchanged(t, base)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "not", "made", "yet")
	refused(t, exec.Command(binary, "server", "--data-dir", dir, "--listen", l.Addr().String()), port, "in use", "--listen")
	refused(t, exec.Command(binary, "up", "--data-dir", dir, "--api-port", port), port, "in use", "--api-port")
	refused(t, exec.Command(binary, "up", "--detach", "--data-dir", dir, "--api-port", port), port, "in use", "--api-port")
}

// public copies the program to where every user can run it.
func public(t *testing.T) (binary, home string) {
	t.Helper()
	home, err := os.MkdirTemp("", "everynode-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	binary = filepath.Join(home, "everynode")
	from, err := os.Open(needs.Everynode(t, "../.."))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(binary, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close(), os.Chmod(binary, 0o755), os.Chmod(home, 0o755), os.Mkdir(filepath.Join(home, "own"), 0o755), os.Chown(filepath.Join(home, "own"), 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	return binary, filepath.Join(home, "own")
}

func TestWithoutRoot(t *testing.T) {
	needs.Root(t, "only root can become somebody else")
	binary, home := public(t)
	unchanged(t, home)
	asNobody := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return cmd
	}
	refused(t, asNobody("up", "--runtime", "containerd", "--data-dir", filepath.Join(home, "data")), "needs root", "sudo", "--runtime simulated")
	refused(t, asNobody("up", "--data-dir", "/root/everynode"), "/root", "permission denied", "--data-dir")
	refused(t, asNobody("agent", "--node-ip", "127.0.0.1"), "needs root", "sudo")
	// Some containers let everybody have every port.
	if first, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil && strings.TrimSpace(string(first)) == "0" {
		return
	}
	refused(t, asNobody("server", "--data-dir", filepath.Join(home, "data"), "--listen", "127.0.0.1:1"), "without root", "--listen")
}

// TestMissingPrograms hides the folders with containerd, runc and the CNI
// plugins in a mount namespace of its own.
func TestMissingPrograms(t *testing.T) {
	needs.Root(t, "hiding folders needs root")
	binary, base := needs.Everynode(t, "../.."), t.TempDir()
	unchanged(t, base)
	for hidden, want := range map[string]string{"containerd": "containerd", "runc": "runc", "bridge": "CNI plugins bridge, host-local"} {
		// The mount namespace ends with the shell, and the mounts with it.
		script := `mount --make-rprivate / || exit 9
for p in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
  if [ -e "$p/$1" ]; then mount --bind /dev/null "$p/$1" || exit 9; fi
done
shift; exec "$@"`
		cmd := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", hidden, binary, "up", "--runtime", "containerd", "--data-dir", filepath.Join(base, "data"))
		cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
		refused(t, cmd, want, "apt-get install", "--runtime simulated")
	}
}

func TestBrokenKubeconfig(t *testing.T) {
	binary, dir := needs.Everynode(t, "../.."), t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	for _, text := range []string{"", "hello", "clusters: [", "apiVersion: v1\nkind: Config\n", "apiVersion: v1\nkind: Config\ncurrent-context: x\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, exec.Command(binary, "kubectl", "--data-dir", dir, "get", "pods"), path, "restart the control plane")
		refused(t, exec.Command(binary, "token", "create", "--data-dir", dir), path, "restart the control plane")
	}
}

// startServer runs a control plane alone and waits for its kubeconfig.
func startServer(t *testing.T, dir string) (url string, cmd *exec.Cmd) {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(needs.Everynode(t, "../.."), "server", "--data-dir", dir, "--listen", "127.0.0.1:"+port)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for exec.CommandContext(ctx, needs.Everynode(t, "../.."), "kubectl", "--data-dir", dir, "get", "--raw", "/readyz").Run() != nil {
		if ctx.Err() != nil {
			t.Fatalf("the server did not become ready:\n%s", &log)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return "https://127.0.0.1:" + port, cmd
}

// stopServer stops it as a user does.
func stopServer(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v after Ctrl-C, want exit code 0", err)
	}
}

func TestAgentThatCannotJoin(t *testing.T) {
	needs.Root(t, "an agent needs root")
	binary, dir := needs.Everynode(t, "../.."), t.TempDir()
	url, server := startServer(t, filepath.Join(dir, "server"))
	out, err := exec.Command(binary, "token", "create", "--data-dir", filepath.Join(dir, "server")).Output()
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(out))
	secret := regexp.MustCompile(`\.[a-z0-9]{16}\.`).ReplaceAllString(token, ".0000000000000000.")
	agent := func(args ...string) *exec.Cmd {
		return exec.Command(binary, append([]string{"agent", "--data-dir", filepath.Join(dir, "agent"), "--node-name", "n"}, args...)...)
	}
	refused(t, agent("--node-ip", "here", "--server", url), `"here"`, "--node-ip")
	refused(t, agent("--node-ip", "127.0.0.1"), "--server")
	refused(t, agent("--node-ip", "127.0.0.1", "--server", "http://x"), "http://x", "https://HOST:PORT")
	refused(t, agent("--node-ip", "127.0.0.1", "--server", url), "join token")
	refused(t, agent("--node-ip", "127.0.0.1", "--server", url, "--token", "x"), "join token", "ID.SECRET.CAHASH")
	refused(t, agent("--node-ip", "127.0.0.1", "--server", url, "--token", token[:len(token)-64]+strings.Repeat("0", 64)), "token")
	refused(t, agent("--node-ip", "127.0.0.1", "--server", url, "--token", secret), "token")
	refused(t, agent("--node-ip", "127.0.0.1", "--server", url, "--token", token, "--register-with-taints", "x"), "key=value:Effect")
	refused(t, exec.Command(binary, "server", "--data-dir", filepath.Join(dir, "server"), "--listen", "127.0.0.1:0"), "in use by another everynode server", "--data-dir")
	stopServer(t, server)
}

func TestDamagedFilesOfAControlPlane(t *testing.T) {
	binary, good := needs.Everynode(t, "../.."), t.TempDir()
	_, server := startServer(t, good)
	stopServer(t, server)
	const junk = "this is not what it was"
	for name, damage := range map[string]func(path string) error{
		"etcd/member/snap/db": func(p string) error { return os.Truncate(p, 5*4096) },
		"etcd/member/wal/*":   func(p string) error { return os.WriteFile(p, []byte(junk), 0o600) },
		"etcd":                func(p string) error { return errors.Join(os.RemoveAll(p), os.WriteFile(p, nil, 0o600)) },
		"pki/ca.crt":          os.Remove,
		"pki/ca.key":          func(p string) error { return os.WriteFile(p, []byte(junk), 0o600) },
		"pki/apiserver.crt":   func(p string) error { return os.Truncate(p, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			paths, err := filepath.Glob(filepath.Join(dir, name))
			if err != nil || len(paths) != 1 {
				t.Fatalf("%s is %v, %v, want one file", name, paths, err)
			}
			if err := damage(paths[0]); err != nil {
				t.Fatal(err)
			}
			refused(t, exec.Command(binary, "server", "--data-dir", dir, "--listen", "127.0.0.1:0"), dir)
		})
	}
	t.Run("local.json", func(t *testing.T) {
		for _, text := range []string{"", "{", "[]", `{"version":99}`} {
			if err := os.WriteFile(filepath.Join(good, "local.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, exec.Command(binary, "up", "--data-dir", good), "local.json", "move it away")
			refused(t, exec.Command(binary, "down", "--purge", "--data-dir", good), "local.json", "move it away")
		}
	})
}
