package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// file is a place in a volume and, where a volume has several, its source.
type file struct{ path, source string }

func (f file) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// overlaps says which files of a volume hide each other, because they have the
// same path or one is where the other needs a directory.
func overlaps(v *corev1.Volume) []string {
	switch {
	case v.ConfigMap != nil:
		return collisions(fmt.Sprintf("volume %q (ConfigMap %q)", v.Name, v.ConfigMap.Name), keyFiles(v.ConfigMap.Items, ""))
	case v.Secret != nil:
		return collisions(fmt.Sprintf("volume %q (Secret %q)", v.Name, v.Secret.SecretName), keyFiles(v.Secret.Items, ""))
	case v.DownwardAPI != nil:
		return collisions(fmt.Sprintf("volume %q (DownwardAPI)", v.Name), fieldFiles(v.DownwardAPI.Items, ""))
	case v.Projected != nil:
		return projectedOverlaps(v.Name, v.Projected)
	}
	return nil
}

func projectedOverlaps(name string, p *corev1.ProjectedVolumeSource) []string {
	var w []string
	var files []file
	for i := range p.Sources {
		s := &p.Sources[i]
		if *s == (corev1.VolumeProjection{}) {
			w = append(w, fmt.Sprintf("volume %q (Projected) has no sources provided", name))
		}
		files = append(files, filesOf(s)...)
	}
	return append(w, collisions(fmt.Sprintf("volume %q (Projected)", name), files)...)
}

func filesOf(s *corev1.VolumeProjection) []file {
	switch {
	case s.ConfigMap != nil:
		return keyFiles(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))
	case s.Secret != nil:
		return keyFiles(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))
	case s.DownwardAPI != nil:
		return fieldFiles(s.DownwardAPI.Items, "DownwardAPI")
	case s.ServiceAccountToken != nil:
		return []file{{s.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case s.ClusterTrustBundle != nil:
		return []file{{s.ClusterTrustBundle.Path, "ClusterTrustBundle"}}
	}
	return nil
}

func keyFiles(items []corev1.KeyToPath, source string) []file {
	out := make([]file, len(items))
	for i, item := range items {
		out[i] = file{item.Path, source}
	}
	return out
}

func fieldFiles(items []corev1.DownwardAPIVolumeFile, source string) []file {
	out := make([]file, len(items))
	for i, item := range items {
		out[i] = file{item.Path, source}
	}
	return out
}

func collisions(volume string, files []file) []string {
	var w []string
	for i, f := range files {
		for _, earlier := range files[:i] {
			if overlap(strings.TrimRight(f.path, "/"), strings.TrimRight(earlier.path, "/")) {
				w = append(w, fmt.Sprintf("%s: overlapping paths: %s with %s", volume, f, earlier))
			}
		}
	}
	return w
}

func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}
