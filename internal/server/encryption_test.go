package server_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

const (
	oneKey   = "      - secretbox: {keys: [{name: one, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}]}\n"
	otherKey = "      - secretbox: {keys: [{name: other, secret: eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=}]}\n"
)

// encrypted writes a configuration of encryption for Secrets.
func encrypted(t *testing.T, providers string) (change func(*config.Options), file string) {
	t.Helper()
	return encryptedAs(t, "secrets", providers)
}

// encryptedAs writes a configuration of encryption for resources.
func encryptedAs(t *testing.T, resources, providers string) (change func(*config.Options), file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "encryption.yaml")
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n  - resources: [\"" + resources + "\"]\n    providers:\n" + providers
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(o *config.Options) { o.API.Etcd.EncryptionProviderConfigFilepath = file }, file
}

// onDisk says whether any file below a folder holds a text.
func onDisk(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Secrets are not readable in the database's files, other objects are; and a server
// whose configuration cannot read them does not start, and says so.
func TestEncryptedSecrets(t *testing.T) {
	t.Parallel()
	change, file := encrypted(t, oneKey+"      - identity: {}\n")
	env := testenv.Start(t, change)
	ctx := t.Context()
	const hidden, shown = "a-password-that-nobody-may-see", "a-text-that-everybody-may-see"
	if _, err := env.Client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"p": hidden}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"p": shown}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Restart()
	s, err := env.Client.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{})
	if err != nil || string(s.Data["p"]) != hidden {
		t.Errorf("after a restart the Secret is %q, %v", s.Data, err)
	}
	env.Stop()
	data := filepath.Join(env.DataDir(), "etcd")
	if onDisk(t, data, hidden) {
		t.Error("the Secret can be read in the database's files")
	}
	if !onDisk(t, data, shown) || !onDisk(t, data, "k8s:enc:secretbox:v1:one:") {
		t.Error("the config map, or the Secret's mark, cannot be found in the database's files: the test looks in the wrong place")
	}
	for name, c := range map[string]struct {
		providers string
		want      []string
	}{
		"another key":      {otherKey + "      - identity: {}\n", []string{"the stored secrets cannot be read", "--encryption-provider-config", "add the key"}},
		"no configuration": {"", []string{"1 Secrets are encrypted with one", "name the --encryption-provider-config"}},
	} {
		o := config.Defaults()
		o.DataDir, o.Listen, o.NoFsync = env.DataDir(), []string{"127.0.0.1:0"}, true
		if c.providers != "" {
			change, _ := encrypted(t, c.providers)
			change(&o)
		}
		s, err := server.New(o)
		if err == nil {
			err = s.Run(ctx)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: got %v, want one line with %q", name, err, want)
			}
		}
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	o := config.Defaults()
	o.DataDir, o.Listen = t.TempDir(), []string{"127.0.0.1:0"}
	change(&o)
	if _, err := server.New(o); err == nil || !strings.Contains(err.Error(), "chmod 600 "+file) {
		t.Errorf("with keys that others can read: %v", err)
	}
}

// Plugins of admission can be switched off, and a name that is none is refused.
func TestAdmissionPluginsCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	o := config.Defaults()
	o.DataDir, o.Listen, o.NoFsync = t.TempDir(), []string{"127.0.0.1:0"}, true
	o.API.DisablePlugins = []string{"Nope"}
	s, err := server.New(o)
	if err == nil {
		err = s.Run(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), `"Nope" is unknown`) || !strings.Contains(err.Error(), "DefaultTolerationSeconds") {
		t.Errorf("got %v, want an error that lists the plugins", err)
	}
	env := testenv.Start(t, func(o *config.Options) { o.API.DisablePlugins = []string{"DefaultTolerationSeconds"} })
	p, err := env.Client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}},
	}, metav1.CreateOptions{})
	if err != nil || len(p.Spec.Tolerations) > 0 {
		t.Errorf("without the plugin a pod has the tolerations %v, %v", p.Spec.Tolerations, err)
	}
}
