package server_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/encryption/plan"
	"github.com/everynode/everynode/internal/testenv"
)

func makeSecret(t *testing.T, client kubernetes.Interface, name, password string) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"p": password}}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func checkSecret(t *testing.T, client kubernetes.Interface, name, password string) {
	t.Helper()
	s, err := client.CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || string(s.Data["p"]) != password {
		t.Errorf("the Secret %s is %q, %v", name, s.Data, err)
	}
}

// Nothing of a Secret can be found in the files of a server that was killed, and the
// next one reads it.
func TestSecretsAreEncryptedFromTheStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	client, kill := serveElsewhere(t, dir)
	const hidden, shown = "a-password-that-nobody-may-see", "a-text-that-everybody-may-see"
	makeSecret(t, client, "s", hidden)
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"p": shown}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kill()
	for _, text := range []string{hidden, base64.StdEncoding.EncodeToString([]byte(hidden)), base64.StdEncoding.EncodeToString([]byte(hidden))[4:20]} {
		if onDisk(t, dir, text) {
			t.Errorf("%q can be read in the data folder", text)
		}
	}
	if !onDisk(t, filepath.Join(dir, "etcd", "member", "wal"), shown) || !onDisk(t, filepath.Join(dir, "etcd"), "k8s:enc:secretbox:v1:key-1:") {
		t.Error("the ConfigMap, or the Secret's mark, cannot be found: the test looks in the wrong place")
	}
	info, err := os.Stat(encryption.File(dir))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the keys are in %v, %v", info, err)
	}
	for name, mode := range map[string]os.FileMode{"": 0o700, "etcd": 0o700, "pki": 0o700, "kubeconfig": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q in the data folder has the mode %v, %v, want %v", name, info.Mode(), err, mode)
		}
	}
	client, _ = serveElsewhere(t, dir)
	checkSecret(t, client, "s", hidden)
}

// startup returns why a server does not start on a folder.
func startup(t *testing.T, dir string, change ...func(*config.Options)) error {
	t.Helper()
	o := config.Defaults()
	o.DataDir, o.Listen, o.NoFsync = dir, []string{"127.0.0.1:0"}, true
	for _, c := range change {
		c(&o)
	}
	s, err := server.New(o)
	if err == nil {
		err = s.Run(t.Context())
	}
	return err
}

// A server that could not read its Secrets does not start, and says what to do; nothing
// is changed, and with the right file it starts again.
func TestStartWithoutTheRightKeys(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	makeSecret(t, env.Client, "s", "x")
	env.Stop()
	file := encryption.File(env.DataDir())
	right, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	another, err := encryption.NewKey("key-1")
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := encryption.Encode(encryption.Keys{another})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := encryption.Encode(encryption.Keys{{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content []byte
		mode    os.FileMode
		want    string
	}{
		"lost":                 {nil, 0, "restore it from a backup, or copy it from another server"},
		"another key":          {wrong, 0o600, "are not those of this database"},
		"half written":         {right[:len(right)-20], 0o600, "restore"},
		"empty":                {[]byte{}, 0o600, "is empty; restore it from a backup"},
		"others can read it":   {right, 0o644, "run chmod 600 " + file},
		"only plain":           {plain, 0o600, "are not those of this database"},
		"changed by hand":      {bytes.Replace(right, []byte("- secrets"), []byte("- secrets\n  - configmaps"), 1), 0o600, "name it with --encryption-provider-config"},
		"a file of other kind": {[]byte("kind: Nonsense\n"), 0o600, "name it with --encryption-provider-config"},
	} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if c.mode != 0 {
			if err := os.WriteFile(file, c.content, c.mode); err != nil {
				t.Fatal(err)
			}
		}
		err := startup(t, env.DataDir())
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", name, err, c.want)
		}
	}
	if err := os.WriteFile(file, right, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	// It is a configuration like any other, for whoever takes it over.
	own := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(own, right, 0o600); err != nil {
		t.Fatal(err)
	}
	env.Restart(func(o *config.Options) { o.API.Etcd.EncryptionProviderConfigFilepath = own })
	checkSecret(t, env.Client, "s", "x")
	env.Restart(func(o *config.Options) { o.API.Etcd.EncryptionProviderConfigFilepath = "" })
	checkSecret(t, env.Client, "s", "x")
}

// quick has a server believe sooner that writes of before are done.
func quick(o *config.Options) { o.API.Run.RequestTimeout = 2 * time.Second }

func changeOf(env *testenv.Env, rotate bool, out *bytes.Buffer) *encryption.Change {
	return &encryption.Change{DataDir: env.DataDir(), Servers: encryption.AskServers(env.Client, time.Now), Out: out, Rotate: rotate, Patience: time.Minute}
}

var errKilled = errors.New("killed")

// A change of the key that is killed after any of its steps leaves a cluster that
// works, also after a restart, and is finished by the next command.
func TestRotationIsKilledAtEachStep(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, quick)
	for i := range 30 {
		makeSecret(t, env.Client, fmt.Sprintf("s-%d", i), "a-password-that-nobody-may-see")
	}
	for round, last := range []plan.Kind{plan.Add, plan.Promote, plan.Rewrite, plan.Drop, plan.Done} {
		var out bytes.Buffer
		c := changeOf(env, true, &out)
		c.After = func(k plan.Kind) error {
			if k == last {
				return errKilled
			}
			return nil
		}
		if err := c.Run(t.Context()); (last == plan.Done) != (err == nil) || err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed after %s: %v\n%s", last, err, &out)
		}
		if round%2 == 0 {
			env.Restart()
		}
		checkSecret(t, env.Client, "s-7", "a-password-that-nobody-may-see")
		makeSecret(t, env.Client, fmt.Sprintf("between-%d", round), "x")
		if last != plan.Drop && last != plan.Done {
			if err := changeOf(env, true, &out).Run(t.Context()); err != nil {
				t.Fatalf("after it was killed after %s: %v\n%s", last, err, &out)
			}
		}
		status, err := encryption.AskServers(env.Client, time.Now).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("secretbox:key-%d", round+2)
		if r := status.Resources[0]; r.Writes != key || len(r.Stored) != 1 || r.Stored[key] < 31 {
			t.Fatalf("after round %d: %+v\n%s", round, status, &out)
		}
		content, err := os.ReadFile(encryption.File(env.DataDir()))
		if err != nil || strings.Count(string(content), "name: key-") != 1 {
			t.Errorf("after round %d the file is %s, %v", round, content, err)
		}
	}
	env.Restart()
	for i := range 30 {
		checkSecret(t, env.Client, fmt.Sprintf("s-%d", i), "a-password-that-nobody-may-see")
	}
}

// Data from before Secrets were encrypted works as it did, until somebody encrypts it.
func TestOldDataIsEncryptedWhenItIsTold(t *testing.T) {
	t.Parallel()
	plain, _ := encrypted(t, "      - identity: {}\n")
	env := testenv.Start(t, plain, quick)
	makeSecret(t, env.Client, "s", "a-password-of-old")
	if _, err := os.Stat(encryption.File(env.DataDir())); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("with a configuration of one's own there is a file of keys: %v", err)
	}
	var out bytes.Buffer
	if err := changeOf(env, false, &out).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--encryption-provider-config and yours to change") {
		t.Errorf("with a configuration of one's own: %v", err)
	}
	env.Restart(func(o *config.Options) { o.API.Etcd.EncryptionProviderConfigFilepath = "" })
	makeSecret(t, env.Client, "t", "another-password-of-old")
	if !onDisk(t, env.DataDir(), "another-password-of-old") {
		t.Error("data of old was encrypted by nobody's will")
	}
	c := changeOf(env, false, &out)
	c.After = func(k plan.Kind) error {
		if k == plan.Promote {
			return errKilled
		}
		return nil
	}
	if err := c.Run(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	env.Restart()
	if err := changeOf(env, false, &out).Run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	makeSecret(t, env.Client, "u", "a-password-of-now")
	env.Restart()
	for name, password := range map[string]string{"s": "a-password-of-old", "t": "another-password-of-old", "u": "a-password-of-now"} {
		checkSecret(t, env.Client, name, password)
	}
	if onDisk(t, env.DataDir(), "a-password-of-now") {
		t.Error("a Secret that was made afterwards can be read in the data folder")
	}
	content, err := os.ReadFile(encryption.File(env.DataDir()))
	if err != nil || strings.Contains(string(content), "identity") {
		t.Errorf("the file is %s, %v", content, err)
	}
	for _, want := range []string{"Added: key-1", "Promoted: key-1", "Removed: the older key", "Done: Secrets are encrypted with key-1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	}
}

// Two commands at once do not mix their steps.
func TestOneChangeOfKeysAtATime(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, quick)
	var out bytes.Buffer
	first := changeOf(env, true, &out)
	first.After = func(plan.Kind) error {
		if err := changeOf(env, true, &bytes.Buffer{}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another command changes the keys") {
			t.Errorf("a second one: %v", err)
		}
		return errKilled
	}
	if err := first.Run(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
}
