package images

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"sort"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// entry is one registry in a docker configuration.
type entry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// credentials returns what to try for the image, best first; without fitting secrets, one try without credentials.
func (m *Manager) credentials(ctx context.Context, pod *corev1.Pod, image string) ([]*runtimeapi.AuthConfig, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("parse image name %q: %w", image, err)
	}
	found := map[string]entry{}
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := m.cfg.Secrets(ctx, pod.Namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			// The image may be public: a missing pull secret alone must not stop the pod.
			klog.FromContext(ctx).Info("Pull secret not found", "pod", klog.KObj(pod), "secret", ref.Name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read pull secret %s: %w", ref.Name, err)
		}
		entries, err := parseSecret(secret)
		if err != nil {
			return nil, err
		}
		for registry, e := range entries {
			if matches(registry, reference.Domain(named), reference.Path(named)) {
				found[registry] = e
			}
		}
	}
	return authConfigs(found)
}

func authConfigs(found map[string]entry) ([]*runtimeapi.AuthConfig, error) {
	if len(found) == 0 {
		return []*runtimeapi.AuthConfig{nil}, nil
	}
	keys := make([]string, 0, len(found))
	for k := range found {
		keys = append(keys, k)
	}
	// The longest, and so narrowest, first.
	sort.Slice(keys, func(i, j int) bool {
		hostI, pathI := splitRegistry(keys[i])
		hostJ, pathJ := splitRegistry(keys[j])
		if a, b := len(hostI)+len(pathI), len(hostJ)+len(pathJ); a != b {
			return a > b
		}
		return keys[i] < keys[j]
	})
	out := make([]*runtimeapi.AuthConfig, 0, len(keys))
	for _, k := range keys {
		e := found[k]
		if e.Auth != "" {
			user, password, err := decodeAuth(e.Auth)
			if err != nil {
				return nil, fmt.Errorf("read the credentials for %s: %w", k, err)
			}
			e.Username, e.Password = user, password
		}
		out = append(out, &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password, Auth: e.Auth,
			IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken})
	}
	return out, nil
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

// matches says whether credentials kept for registry fit an image of that host and repository. The registry may be a URL,
// may have a path that the repository begins with, and may have * in the parts of its host name.
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

// splitRegistry returns the host and the repositories' prefix of a registry in a docker configuration; both are empty if it is
// none.
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
