package volumes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

func at(pairs ...string) (out []corev1.VolumeMount) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, corev1.VolumeMount{Name: pairs[i], MountPath: pairs[i+1]})
	}
	return out
}

func TestMountPoints(t *testing.T) {
	for name, c := range map[string]struct {
		mounts []corev1.VolumeMount
		want   []string
	}{
		"alone":                       {at("v", "/etc/x"), nil},
		"one inside":                  {at("v", "/etc/x", "w", "/etc/x/keys"), []string{"keys"}},
		"slashes":                     {at("v", "etc/x/", "w", "/etc//x/keys/"), []string{"keys"}},
		"a name that begins the same": {at("v", "/etc/x", "w", "/etc/xkeys"), nil},
		"deep inside":                 {at("w", "/etc/x/a/b/c", "v", "/etc/x"), []string{"a/b/c"}},
		"inside another one inside":   {at("v", "/etc/x", "w", "/etc/x/a", "u", "/etc/x/a/b"), []string{"a"}},
		"itself inside itself":        {at("v", "/etc/x", "v", "/etc/x/again"), []string{"again"}},
		"mounted twice":               {at("v", "/a", "w", "/a/k", "v", "/b", "w", "/b/l"), []string{"k", "l"}},
	} {
		pod := podWith()
		pod.Spec.Containers[0].VolumeMounts = c.mounts
		if got := mountPoints(pod, "v"); !slices.Equal(got, c.want) {
			t.Errorf("%s: mount points %q, want %q", name, got, c.want)
		}
	}
}

// The directories that others are mounted on are there before the container is, whatever kind writes the volume, and stay when its
// content changes; without a mount nothing foreign stays.
func TestMountPointsInVolumes(t *testing.T) {
	for name, volume := range map[string]corev1.Volume{
		"configmap": configMapVolume("c"),
		"secret":    secretVolume("s"),
		"projected": projectedVolume(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}),
		"downward API": {Name: "v", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "a", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, objects := newTest(t)
			objects.configMaps["c"] = &corev1.ConfigMap{Data: map[string]string{"a": "1"}}
			objects.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"a": []byte("1")}}
			pod := podWith(volume)
			pod.Labels["app"] = "1"
			pod.Spec.Containers[0].VolumeMounts = at("v", "/etc/x", "w", "/etc/x/keys", "w", "/etc/x/deep/down", "w", "/etc/x/a")
			setUp(t, m, pod)
			dir := hostPath(t, m, pod, corev1.VolumeMount{})
			inode := func(name string) uint64 { return inodeOf(t, filepath.Join(dir, name)) }
			keys, deep := inode("keys"), inode("deep/down")
			wantFile(t, filepath.Join(dir, "a"), "1")
			objects.configMaps["c"] = &corev1.ConfigMap{Data: map[string]string{"a": "2", "keys": "hidden"}}
			objects.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"a": []byte("2"), "keys": []byte("hidden")}}
			pod.Labels["app"] = "2"
			setUp(t, m, pod)
			wantFile(t, filepath.Join(dir, "a"), "2")
			if inode("keys") != keys || inode("deep/down") != deep {
				t.Error("what is mounted there is lost")
			}
			pod.Spec.Containers[0].VolumeMounts = at("v", "/etc/x")
			setUp(t, m, pod)
			if _, err := os.Lstat(filepath.Join(dir, "deep")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a directory that nobody wants is there: %v", err)
			}
		})
	}
}

func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		t.Fatalf("%s is no directory to mount on: %v", path, err)
	}
	return stat.Ino
}
