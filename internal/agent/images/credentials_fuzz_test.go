package images

import (
	"context"
	"strings"
	"testing"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// FuzzPullSecret looks for credentials in a pull secret that anybody may have
// written: a registry gets only what was kept for it.
func FuzzPullSecret(f *testing.F) {
	for _, config := range []string{
		`{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNz"}}}`, `{"auths":{"*.example.com:5000/team":{"username":"u","password":"p"}}}`, `{"auths":{"https://index.docker.io/v1/":{"identitytoken":"t"}}}`,
		`{"auths":{"[":{"auth":"!"},"":{},"://":{},"a b":{}}}`, `{"auths":null}`, `[]`, `{"auths":{"registry.example.com":{"auth":"dXNlcg=="}}}`,
	} {
		f.Add("registry.example.com/team/app:v1", true, []byte(config))
		f.Add("app", false, []byte(strings.TrimSuffix(strings.TrimPrefix(config, `{"auths":`), "}")))
	}
	f.Add("bad name", true, []byte("{}"))
	f.Fuzz(func(t *testing.T, image string, modern bool, config []byte) {
		key := corev1.DockerConfigKey
		if modern {
			key = corev1.DockerConfigJsonKey
		}
		secret := &corev1.Secret{Data: map[string][]byte{key: config}}
		m := &Manager{cfg: Config{Secrets: func(context.Context, string, string) (*corev1.Secret, error) { return secret, nil }}}
		pod := &corev1.Pod{Spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}}}}
		found, err := m.credentials(t.Context(), pod, image)
		if err == nil && len(found.auths) == 0 {
			t.Error("nothing to try")
		}
		entries, err := parseSecret(secret)
		named, badName := reference.ParseNormalizedNamed(image)
		if err != nil || badName != nil {
			return
		}
		for registry := range entries {
			host, _ := splitRegistry(registry)
			if plain := !strings.ContainsAny(host, `*?[\`); plain && matches(registry, reference.Domain(named), reference.Path(named)) && host != reference.Domain(named) {
				t.Errorf("what was kept for %q is given to %q", registry, reference.Domain(named))
			}
		}
	})
}
