package pinning

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestDigestsOfImages(t *testing.T) {
	of := strings.Repeat("a1", 32)
	for _, c := range [][3]string{
		{"demo:v1", "docker.io/library/demo@sha256:" + of, "sha256:" + of},
		{"demo", "docker-pullable://demo@sha256:" + of, "sha256:" + of},
		{"team/demo:v1", "docker.io/team/demo@sha256:" + of, "sha256:" + of},
		{"index.docker.io/team/demo:v1", "docker.io/team/demo@sha256:" + of, "sha256:" + of},
		{"localhost/demo:v1", "localhost/demo@sha256:" + of, "sha256:" + of},
		{"host:5000/demo", "host:5000/demo@sha256:" + of, "sha256:" + of},
		{"demo:v1", "docker.io/library/other@sha256:" + of, ""},
		{"demo:v1", "sha256:" + of, ""},
		{"demo:v1", "docker.io/library/demo@sha256:" + of[1:], ""},
		{"demo:v1", "docker.io/library/demo@sha256:" + strings.ToUpper(of), ""},
	} {
		if got := digestOf(c[0], c[1]); got != c[2] {
			t.Errorf("image %s with ID %s has digest %q, want %q", c[0], c[1], got, c[2])
		}
	}
	for image, want := range map[string]string{"a:1": "a", "a": "a", "h:5/a": "h:5/a", "h:5/a:1": "h:5/a"} {
		if got := repository(image); got != want {
			t.Errorf("the repository of %s is %s, want %s", image, got, want)
		}
	}
}

// A digest that somebody wrote into a pod is not told before the node has it, and nothing that is none ever.
func TestDigestsOfAPodCountOncePulled(t *testing.T) {
	hex := strings.Repeat("a1", 32)
	template := &corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "demo:v1"}}}
	for _, c := range []struct {
		image, id   string
		whole, made bool
		want        string
	}{
		{"demo@sha256:" + hex, "", false, true, ""},
		{"demo@sha256:" + hex, "docker.io/library/demo@sha256:" + hex, true, true, "sha256:" + hex},
		{"demo@sha256:nonsense", "", false, false, ""},
		{"demo@sha256:" + hex[2:], "", false, false, ""},
		{"demo@sha256:nonsense", "docker.io/library/demo@sha256:" + hex, true, false, "sha256:" + hex},
		{"demo:v1", "docker.io/library/demo@sha256:" + hex, true, false, "sha256:" + hex},
		{"demo:v1", "", false, false, ""},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: c.image}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a", ImageID: c.id}}}}
		images, whole, made := Read(template, p)
		got := ""
		if len(images) == 1 {
			got = images[0].Digest
		}
		if whole != c.whole || made != c.made || got != c.want {
			t.Errorf("%s with ID %q tells %q, whole %t, made %t; want %q, %t, %t", c.image, c.id,
				got, whole, made, c.want, c.whole, c.made)
		}
	}
}

// A volume is known once a container that mounts it tells of it, or all of them have their image and none does.
func TestWhenVolumesAreKnown(t *testing.T) {
	of := "sha256:" + strings.Repeat("a1", 32)
	mounts := []corev1.VolumeMount{{Name: "v"}}
	template := &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "rules:v1"}}},
		{Name: "fixed", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "rules@" + of}}},
		{Name: "never", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "rules:v2", PullPolicy: corev1.PullNever}}}, {Name: "data"}},
		InitContainers: []corev1.Container{{Name: "i", Image: "demo@" + of}}, Containers: []corev1.Container{{Name: "a", Image: "demo@" + of, VolumeMounts: mounts}, {Name: "b", Image: "demo@" + of}}}
	says := []corev1.VolumeMountStatus{{Name: "data"}, {Name: "v", VolumeStatus: &corev1.VolumeStatus{Image: &corev1.ImageVolumeStatus{ImageRef: "docker.io/library/rules@" + of}}}}
	type status = corev1.ContainerStatus
	unmounted := template.DeepCopy()
	unmounted.Containers[0].VolumeMounts = nil
	pinned := template.DeepCopy()
	pinned.Volumes[0].Image.Reference = "rules@" + of
	for name, c := range map[string]struct {
		spec        *corev1.PodSpec
		status      []status
		init        status
		whole, made bool
		want        string
	}{
		"nothing has begun":                    {template, nil, status{}, false, false, ""},
		"another container has its image":      {template, []status{{Name: "b", ImageID: "x"}}, status{Name: "i", ImageID: "x"}, false, false, ""},
		"the one that mounts it is silent":     {template, []status{{Name: "a", ImageID: "x"}}, status{}, true, false, ""},
		"the one that mounts it tells":         {template, []status{{Name: "a", ImageID: "x", VolumeMounts: says}}, status{}, true, false, of},
		"an init container tells":              {template, nil, status{Name: "i", ImageID: "x", VolumeMounts: says}, true, false, of},
		"nobody mounts it, and nothing began":  {unmounted, nil, status{}, false, false, ""},
		"nobody mounts it":                     {unmounted, []status{{Name: "a", ImageID: "x"}}, status{}, true, false, ""},
		"it was made with a digest, and waits": {pinned, nil, status{}, false, true, ""},
		"it was made with a digest":            {pinned, []status{{Name: "a", ImageID: "x"}}, status{}, true, true, of},
	} {
		p := &corev1.Pod{Spec: *c.spec, Status: corev1.PodStatus{InitContainerStatuses: []status{c.init}, ContainerStatuses: c.status}}
		images, whole, made := Read(template, p)
		got := ""
		if len(images) > 0 {
			got = images[0].Digest
		}
		if whole != c.whole || made != c.made || got != c.want || len(images) > 1 || whole && images[0].Image != "rules:v1" {
			t.Errorf("%s: it tells %v, whole %t, made %t; want %q, %t, %t", name, images, whole, made, c.want, c.whole, c.made)
		}
	}
}
