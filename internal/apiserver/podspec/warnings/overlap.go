package warnings

import (
	"cmp"
	"fmt"
	"slices"
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

// maxCollisions is how many warnings are given of each list whose entries get into each other's way. The
// pairs grow with the square of the list, and of all warnings a client gets the first 4,096 characters.
const maxCollisions = 100

// collisions says which files overlap, in the order of the list: each with those before it.
func collisions(volume string, files []file) []string {
	paths, order := make([]string, len(files)), make([]int, len(files))
	for i, f := range files {
		paths[i], order[i] = strings.TrimRight(f.path, "/"), i
	}
	// In this order a file is followed at once by all that are below it.
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(compareAsTree(paths[a], paths[b]), a-b) })
	var around []int // the files of which the next one may be below
	var pairs [][2]int
	for _, i := range order {
		for len(around) > 0 && !contains(paths[around[len(around)-1]], paths[i]) {
			around = around[:len(around)-1]
		}
		for _, other := range around[:min(len(around), maxCollisions-len(pairs))] {
			pairs = append(pairs, [2]int{max(i, other), min(i, other)})
		}
		if len(pairs) == maxCollisions {
			break
		}
		around = append(around, i)
	}
	slices.SortFunc(pairs, func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) })
	w := make([]string, len(pairs))
	for i, p := range pairs {
		w[i] = fmt.Sprintf("%s: overlapping paths: %s with %s", volume, files[p[0]], files[p[1]])
	}
	return w
}

// contains reports whether b is a or below it.
func contains(a, b string) bool {
	return strings.HasPrefix(b, a) && (len(b) == len(a) || b[len(a)] == '/')
}

// compareAsTree orders paths as strings in which the slash comes before all else.
func compareAsTree(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return len(a) - len(b)
}
