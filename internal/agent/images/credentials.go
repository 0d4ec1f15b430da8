package images

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// entry is one registry in a docker configuration.
type entry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// login is an entry that fits an image, and the registry that it was kept for.
type login struct {
	registry string
	entry
}

// credentials are what there is for an image.
type credentials struct {
	// auths is what to try, best first; one try without credentials if there are none.
	auths []*runtimeapi.AuthConfig
	// missing are the names of pull secrets that do not exist, failed says which programs failed: the image may be public,
	// so that alone does not stop the pod.
	missing []string
	failed  error
}

// explain says why a pull failed for which these were tried.
func (c *credentials) explain(err error) error {
	if c.failed != nil {
		return fmt.Errorf("%s; besides, %w", text(err), c.failed)
	}
	return errors.New(text(err))
}

// credentials returns what to try for the image: what the pod brings, before what the node's file has, before what its
// programs say.
func (m *Manager) credentials(ctx context.Context, pod *corev1.Pod, image string) (out credentials, err error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return out, fmt.Errorf("parse image name %q: %w", image, err)
	}
	var found []login
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := m.cfg.Secrets(ctx, pod.Namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			out.missing = append(out.missing, ref.Name)
			continue
		}
		if err != nil {
			return out, fmt.Errorf("read pull secret %s: %w", ref.Name, err)
		}
		entries, err := parseSecret(secret)
		if err != nil {
			return out, err
		}
		found = fitting(entries, named, found)
	}
	own, err := nodeLogins(m.cfg.LoginFile, named)
	if err != nil {
		return out, err
	}
	var told []login
	told, out.failed = m.askPrograms(ctx, named)
	for _, group := range [][]login{found, own, told} {
		auths, err := authConfigs(group)
		if err != nil {
			return out, err
		}
		out.auths = append(out.auths, auths...)
	}
	if len(out.auths) == 0 {
		out.auths = []*runtimeapi.AuthConfig{nil}
	}
	return out, nil
}

// askPrograms returns what the node's programs say for the image.
func (m *Manager) askPrograms(ctx context.Context, image reference.Named) (found []login, err error) {
	if m.cfg.Programs == nil {
		return nil, nil
	}
	answers, err := m.cfg.Programs.Ask(ctx, image.Name())
	for _, answer := range answers {
		entries := make(map[string]entry, len(answer))
		for registry, c := range answer {
			entries[registry] = entry{Username: c.Username, Password: c.Password}
		}
		found = fitting(entries, image, found)
	}
	return found, err
}

// fitting adds those of the entries to found that fit the image.
func fitting(entries map[string]entry, image reference.Named, found []login) []login {
	for _, registry := range slices.Sorted(maps.Keys(entries)) {
		l := login{registry, entries[registry]}
		if matches(registry, reference.Domain(image), reference.Path(image)) && !slices.Contains(found, l) {
			found = append(found, l)
		}
	}
	return found
}

func authConfigs(found []login) ([]*runtimeapi.AuthConfig, error) {
	// The longest, and so narrowest, first; of equals, that of the first secret or program.
	slices.SortStableFunc(found, func(a, b login) int { return cmp.Compare(b.width(), a.width()) })
	out := make([]*runtimeapi.AuthConfig, 0, len(found))
	for _, l := range found {
		if l.Auth != "" {
			user, password, err := decodeAuth(l.Auth)
			if err != nil {
				return nil, fmt.Errorf("read the credentials for %s: %w", l.registry, err)
			}
			l.Username, l.Password = user, password
		}
		out = append(out, &runtimeapi.AuthConfig{Username: l.Username, Password: l.Password, Auth: l.Auth,
			IdentityToken: l.IdentityToken, RegistryToken: l.RegistryToken})
	}
	return out, nil
}

// width is how much of an image's name the login's registry settles.
func (l login) width() int {
	host, path := splitRegistry(l.registry)
	return len(host) + len(path)
}

func decodeAuth(auth string) (user, password string, err error) {
	raw, err := base64.StdEncoding.DecodeString(auth)
	if err != nil {
		return "", "", fmt.Errorf("decode auth: %w", err)
	}
	user, password, ok := strings.Cut(string(raw), ":")
	if !ok {
		return "", "", fmt.Errorf("auth is not USER:PASSWORD")
	}
	return user, strings.TrimRight(password, "\x00"), nil
}

// parseSecret reads the registries of a pull secret, in its new or its old form.
func parseSecret(s *corev1.Secret) (map[string]entry, error) {
	if raw, ok := s.Data[corev1.DockerConfigJsonKey]; ok {
		var config struct {
			Auths map[string]entry `json:"auths"`
		}
		if err := json.Unmarshal(raw, &config); err != nil {
			return nil, fmt.Errorf("parse pull secret %s: not a docker configuration", s.Name)
		}
		return config.Auths, nil
	}
	entries := map[string]entry{}
	if raw, ok := s.Data[corev1.DockerConfigKey]; ok {
		if err := json.Unmarshal(raw, &entries); err != nil {
			return nil, fmt.Errorf("parse pull secret %s: not a docker configuration", s.Name)
		}
	}
	return entries, nil
}

// matches says whether credentials kept for registry fit an image of that host and repository. The registry may be a
// URL, may have a path that the repository begins with, and may have * in the parts of its host name.
func matches(registry, host, repository string) bool {
	want, prefix := splitRegistry(registry)
	wantParts, haveParts := strings.Split(want, "."), strings.Split(host, ".")
	if len(wantParts) != len(haveParts) {
		return false
	}
	for i := range wantParts {
		if ok, err := path.Match(wantParts[i], haveParts[i]); err != nil || !ok {
			return false
		}
	}
	return prefix == "" || repository == prefix || strings.HasPrefix(repository, prefix+"/")
}

// splitRegistry returns the host and the repositories' prefix of a registry in a docker configuration; both are empty
// if it is none.
func splitRegistry(registry string) (host, prefix string) {
	if !strings.Contains(registry, "://") {
		registry = "https://" + registry
	}
	u, err := url.Parse(registry)
	if err != nil {
		return "", ""
	}
	host, prefix = u.Host, strings.Trim(u.Path, "/")
	if host == "index.docker.io" {
		host = "docker.io"
	}
	// The version of the registry's API says nothing of the images.
	if prefix == "v1" || prefix == "v2" {
		prefix = ""
	}
	return host, prefix
}

// pullKey tells pulls apart: those of one image with the same credentials share a result.
func pullKey(image string, auths []*runtimeapi.AuthConfig) string {
	h := sha256.New()
	for _, a := range auths {
		// A hash.Hash never fails to write.
		_, _ = fmt.Fprintf(h, "%q %q %q %q\n", a.GetUsername(), a.GetPassword(), a.GetIdentityToken(), a.GetRegistryToken())
	}
	return image + " " + hex.EncodeToString(h.Sum(nil))
}
