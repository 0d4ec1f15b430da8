package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/backups"
	"github.com/everynode/everynode/internal/server/backups/schedule"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/storage/backup"
	"github.com/everynode/everynode/internal/storage/backup/plan"
	"github.com/everynode/everynode/internal/testenv"
)

var unlocked = backup.Lock{Plain: true}

// backUp asks a server for a backup.
func backUp(t *testing.T, config *rest.Config) (content []byte, status int) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+backup.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	content, err = io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return content, response.StatusCode
}

func restoreTo(t *testing.T, content []byte, dir string) error {
	t.Helper()
	b, err := backups.Open(bytes.NewReader(content), unlocked)
	if err != nil {
		t.Fatal(err)
	}
	_, err = backups.Restore(t.Context(), b, dir, time.Now())
	return err
}

func version(t *testing.T, o metav1.Object) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A restored control plane has what the backup has, is the same cluster, and no client
// sees time go backwards.
func TestRestoredControlPlane(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t, testenv.SimulatedNodes(3))
	makeSecret(t, e.Client, "s", "hidden")
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	}
	first, err := e.Client.CoreV1().Services("default").Create(t.Context(), service("first"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodesReady(t, e, 3)
	content, status := backUp(t, e.Config)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, content)
	}
	// What comes after the backup is lost, and clients have seen it.
	makeSecret(t, e.Client, "lost", "x")
	watched := nodesReady(t, e, 3)
	account, err := e.Client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.Stop()

	dir := filepath.Join(t.TempDir(), "restored")
	if err := restoreTo(t, content, dir); err != nil {
		t.Fatal(err)
	}
	r := testenv.Start(t, testenv.SimulatedNodes(3), func(o *config.Options) { o.DataDir = dir })
	checkSecret(t, r.Client, "s", "hidden")
	if _, err := r.Client.CoreV1().Secrets("default").Get(t.Context(), "lost", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what came after the backup: %v", err)
	}
	same, err := r.Client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil || same.UID != account.UID || version(t, same) <= version(t, account) {
		t.Errorf("an object was %s at %s and is %s at %s, %v", account.UID, account.ResourceVersion, same.UID, same.ResourceVersion, err)
	}
	// A watch of before is told to begin again, of a kind that is kept in memory our way
	// and of one that is not.
	for name, ask := range map[string]func() error{
		"nodes": func() error {
			return begun(r.Client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: watched}))
		},
		"secrets": func() error {
			return begun(r.Client.CoreV1().Secrets("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: watched}))
		},
	} {
		if err := ask(); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("a watch of %s goes on where it was: %v", name, err)
		}
	}
	// Addresses that are given out are not given out again.
	again := service("second")
	again.Spec.ClusterIP = first.Spec.ClusterIP
	if _, err := r.Client.CoreV1().Services("default").Create(t.Context(), again, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("the address %s is given out twice: %v", first.Spec.ClusterIP, err)
	}
	if _, err := r.Client.CoreV1().Services("default").Create(t.Context(), service("third"), metav1.CreateOptions{}); err != nil {
		t.Errorf("make a Service: %v", err)
	}
	nodesReady(t, r, 3)
}

func nodesReady(t *testing.T, e *testenv.Env, count int) (resourceVersion string) {
	t.Helper()
	e.Eventually("the nodes are ready", func(ctx context.Context) error {
		list, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, n := range list.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		resourceVersion = list.ResourceVersion
		if ready != count {
			return fmt.Errorf("%d of %d are", ready, count)
		}
		return nil
	})
	return resourceVersion
}

// Who may do everything by a role is still not given the keys of everything.
func TestWhoGetsABackup(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operators"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "operators"}},
	}
	if _, err := e.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually("the role counts", func(ctx context.Context) error {
		if content, status := backUp(t, as(e.Config, "jane", "operators")); status != http.StatusForbidden || !strings.Contains(string(content), "system:masters") {
			return fmt.Errorf("status %d: %s", status, content)
		}
		return nil
	})
	for _, group := range []string{"system:nodes", "system:bootstrappers:servers", "system:serviceaccounts", "system:authenticated"} {
		if content, status := backUp(t, as(e.Config, "system:node:n", group)); status != http.StatusForbidden {
			t.Errorf("%s: status %d, %d bytes", group, status, len(content))
		}
	}
	nobody := rest.AnonymousClientConfig(e.Config)
	if _, status := backUp(t, nobody); status != http.StatusUnauthorized && status != http.StatusForbidden {
		t.Errorf("nobody: status %d", status)
	}
	if _, status := backUp(t, e.Config); status != http.StatusOK {
		t.Errorf("the administrator: status %d", status)
	}
}

func as(config *rest.Config, user string, groups ...string) *rest.Config {
	c := rest.CopyConfig(config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return c
}

// stopped is the backup of a server that has never run long.
func stopped(t *testing.T) (content []byte, dir string) {
	t.Helper()
	e := testenv.Start(t)
	makeSecret(t, e.Client, "s", "hidden")
	e.Stop()
	// What one left that was killed goes.
	if err := os.MkdirAll(filepath.Join(e.DataDir(), ".backup-1", "etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	taken, err := server.TakeStopped(t.Context(), e.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var out bytes.Buffer
	if err := taken.Write(&out, unlocked); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(e.DataDir(), ".backup-*")); err != nil || len(left) > 0 {
		t.Errorf("there is left %v, %v", left, err)
	}
	return out.Bytes(), e.DataDir()
}

// Restores are in order by the clock. One that is behind the backup is plainly wrong.
func TestRestoreRefusesAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	content, _ := stopped(t)
	b, err := backups.Open(bytes.NewReader(content), unlocked)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	_, err = backups.Restore(t.Context(), b, dir, b.Manifest.Created.Add(-time.Hour))
	if err == nil || !strings.Contains(err.Error(), "clock") {
		t.Errorf("it is restored by a clock that is an hour behind: %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
}

func TestRestoreRefusals(t *testing.T) {
	t.Parallel()
	content, used := stopped(t)
	base := t.TempDir()
	path := func(name string) string { return filepath.Join(base, name) }
	if err := os.WriteFile(path("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cut := content[:len(content)-10]
	for name, c := range map[string]struct {
		content []byte
		dir     string
		want    string
	}{
		"in use before": {content, used, "is not empty"},
		"a file":        {content, path("file"), "not a directory"},
		"cut off":       {cut, path("cut"), "cut off"},
		"cut off below": {cut, path("a/b/c"), "cut off"},
		"no folder":     {content, "", "--data-dir"},
	} {
		before := tree(t, base)
		if err := restoreTo(t, c.content, c.dir); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if after := tree(t, base); after != before {
			t.Errorf("%s: there was\n%s\nand is\n%s", name, before, after)
		}
	}
	// A folder whose server runs.
	e := testenv.Start(t)
	if err := restoreTo(t, content, e.DataDir()); err == nil {
		t.Error("a folder whose server runs is taken")
	}
	if _, err := server.TakeStopped(t.Context(), e.DataDir()); !errors.Is(err, backups.ErrRunning) {
		t.Errorf("a folder whose server runs is copied: %v", err)
	}
	if _, err := server.TakeStopped(t.Context(), path("none")); err == nil || !strings.Contains(err.Error(), "holds no data") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func tree(t *testing.T, dir string) (out string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		out += path + "\n"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// restoreVariable has this program restore the standard input into the folder that it names.
const restoreVariable = "EVERYNODE_TEST_RESTORE"

func restoreStdin(dir string) error {
	b, err := backups.Open(os.Stdin, unlocked)
	if err == nil {
		_, err = backups.Restore(context.Background(), b, dir, time.Now())
	}
	return err
}

// A server makes backups by itself, under a name that says of which cluster they are.
func TestServerMakesScheduledBackups(t *testing.T) {
	t.Parallel()
	_, public, err := backup.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key, to := filepath.Join(dir, "key"), filepath.Join(dir, "to")
	if err := os.WriteFile(key, []byte(public), 0o600); err != nil {
		t.Fatal(err)
	}
	e := testenv.Start(t, func(o *config.Options) {
		o.Backups = schedule.Options{Every: time.Hour, To: to, Keep: 1, KeyFile: key}
	})
	system, err := e.Client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		made, err := filepath.Glob(filepath.Join(to, "everynode-*.backup"))
		if err == nil && len(plan.Of(string(system.UID), []string{filepath.Base(strings.Join(made, ""))})) == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there are the backups %v, %v", made, err)
		}
	}
}

// A restore that is killed leaves a folder on which no server starts by mistake, and
// which the same restore completes.
func TestRestoreThatIsKilled(t *testing.T) {
	t.Parallel()
	content, _ := stopped(t)
	base := t.TempDir()
	half := "restore-unfinished"
	moments := []string{half, half + "/" + backup.Database, half + "/" + datadir.WrittenFile, "etcd", datadir.WrittenFile}
	for i, moment := range moments {
		dir := filepath.Join(base, strconv.Itoa(i))
		killAt(t, content, dir, filepath.Join(dir, moment))
		_, err := os.Stat(filepath.Join(dir, half))
		unfinished := err == nil
		t.Logf("killed at %s: unfinished %v", moment, unfinished)
		if !unfinished {
			continue // when all was there: a server would start, and run
		}
		if err := startup(t, dir); err == nil || !strings.Contains(err.Error(), "was not finished") {
			t.Errorf("killed at %s: a server starts on half a restore: %v", moment, err)
		}
		if err := restoreTo(t, content, dir); err != nil {
			t.Errorf("killed at %s: restore again: %v", moment, err)
		}
	}
	r := testenv.Start(t, func(o *config.Options) { o.DataDir = filepath.Join(base, "3") })
	checkSecret(t, r.Client, "s", "hidden")
}

// killAt kills a restore as soon as a path is there.
func killAt(t *testing.T, content []byte, dir, path string) {
	t.Helper()
	process := exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // It is this program.
	process.Env, process.Stdin = append(os.Environ(), restoreVariable+"="+dir), bytes.NewReader(content)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = process.Wait(); close(ended) }()
	for {
		if _, err := os.Lstat(path); err == nil {
			break
		}
		select {
		case <-ended:
			return
		default:
		}
	}
	_ = process.Process.Kill()
	<-ended
}

// Data of a newer program is left alone, that of an older one is used and signed.
func TestDataVersions(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	e.Stop()
	file := filepath.Join(e.DataDir(), datadir.WrittenFile)
	here, err := datadir.ReadWritten(e.DataDir())
	if err != nil || here.Data != datadir.Version {
		t.Fatalf("the folder says %+v, %v", here, err)
	}
	newer := fmt.Sprintf(`{"data":%d,"everynode":"v9.9.9","kubernetes":"v1.99.0"}`, datadir.Version+1)
	for name, content := range map[string]string{"newer": newer, "broken": "{", "none": "{}"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := startup(t, e.DataDir())
		if err == nil || strings.Contains(err.Error(), "\n") || name == "newer" && !strings.Contains(err.Error(), "v9.9.9") {
			t.Errorf("%s: %v", name, err)
		}
		if got, _ := os.ReadFile(file); string(got) != content {
			t.Errorf("%s: the file was changed to %s", name, got)
		}
		if _, err := server.TakeStopped(t.Context(), e.DataDir()); err == nil {
			t.Errorf("%s: a backup is made", name)
		}
	}
	for name, content := range map[string]string{"older": `{"data":1,"everynode":"v0.0.1","kubernetes":"v1.30.0"}`, "unsigned": ""} {
		err := os.Remove(file)
		if content != "" {
			err = os.WriteFile(file, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		e.Restart()
		if got, err := datadir.ReadWritten(e.DataDir()); err != nil || got != here {
			t.Errorf("%s: the folder says %+v, %v", name, got, err)
		}
		e.Stop()
	}
}

// begun is why a watch did not begin, or ended at once.
func begun(w watch.Interface, err error) error {
	if err != nil {
		return err
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		return apierrors.FromObject(e.Object)
	case <-time.After(10 * time.Second):
		return errors.New("it says nothing")
	}
}
