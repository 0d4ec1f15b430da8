package images

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCredentialsOfTheNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	// "bm9kZTpwYXNz" is node:pass.
	const own = `{"auths":{"registry.example.com":{"auth":"bm9kZTpwYXNz"}}}`
	secret := &corev1.Secret{Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.example.com":{"username":"pod","password":"p"}}}`)}}
	m := New(Config{LoginFile: path, Secrets: func(context.Context, string, string) (*corev1.Secret, error) { return secret, nil }})
	plain, withSecret := &corev1.Pod{}, &corev1.Pod{Spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}}}}
	for name, c := range map[string]struct {
		text  string
		mode  os.FileMode
		pod   *corev1.Pod
		image string
		users string
		fails string
	}{
		"no file":           {"", 0, plain, "registry.example.com/a:1", "-", ""},
		"for the image":     {own, 0o600, plain, "registry.example.com/a:1", "node", ""},
		"for another":       {own, 0o600, plain, "other.example.com/a:1", "-", ""},
		"after the pod's":   {own, 0o600, withSecret, "registry.example.com/a:1", "pod node", ""},
		"readable by all":   {own, 0o644, plain, "registry.example.com/a:1", "", "chmod 600 "},
		"readable, of none": {own, 0o644, plain, "other.example.com/a:1", "-", ""},
		"broken":            {"{", 0o600, plain, "other.example.com/a:1", "", "is not a docker configuration"},
		"a helper":          {`{"credHelpers":{"x":"y"}}`, 0o600, plain, "other.example.com/a:1", "", "names credential helpers, which are not run"},
	} {
		_ = os.Remove(path)
		if c.text != "" {
			if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
		}
		got, err := m.credentials(t.Context(), c.pod, c.image)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v, want %q", name, err, c.fails)
			}
			continue
		}
		var users []string
		for _, a := range got.auths {
			if user := a.GetUsername(); user != "" {
				users = append(users, user)
			} else {
				users = append(users, "-")
			}
		}
		if tried := strings.Join(users, " "); err != nil || tried != c.users {
			t.Errorf("%s: tries %q (%v), want %q", name, tried, err, c.users)
		}
	}
}
