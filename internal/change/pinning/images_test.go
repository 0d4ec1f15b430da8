package pinning

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/pod/podtest"
)

func TestDigestsOfImages(t *testing.T) {
	of := strings.Repeat("a1", 32)
	for _, c := range [][3]string{
		{"demo:v1", "docker.io/library/demo@sha256:" + of, "sha256:" + of},
		{"demo", "docker-pullable://demo@sha256:" + of, "sha256:" + of},
		{"team/demo:v1", "docker.io/team/demo@sha256:" + of, "sha256:" + of},
		{"index.docker.io/team/demo:v1", "docker.io/team/demo@sha256:" + of, "sha256:" + of},
		{"docker.io/demo:v1", "docker.io/library/demo@sha256:" + of, "sha256:" + of},
		{"index.docker.io/demo:v1", "docker.io/library/demo@sha256:" + of, "sha256:" + of},
		{"docker.io/library/demo:v1", "docker.io/library/demo@sha256:" + of, "sha256:" + of},
		{"docker.io/team/demo:v1", "docker.io/team/demo@sha256:" + of, "sha256:" + of},
		{"docker.io/demo:v1", "docker.io/team/demo@sha256:" + of, ""},
		{"UPPER/demo:v1", "docker.io/UPPER/demo@sha256:" + of, ""},
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

// Two containers of one tag that moved between their pulls tell nothing, whichever is first.
func TestAPodWithTwoDigestsOfOneTagTellsNothing(t *testing.T) {
	id := func(digit string) string { return "docker.io/library/demo@sha256:" + strings.Repeat(digit, 64) }
	template := &corev1.PodSpec{InitContainers: []corev1.Container{{Name: "a", Image: "demo:v1"}},
		Containers: []corev1.Container{{Name: "b", Image: "demo:v1"}}}
	for _, c := range []struct {
		a, b         string
		whole, tells bool
	}{
		{id("1"), id("1"), true, true},
		{id("1"), id("2"), false, false},
		{id("1"), "", false, true},
		{id("1"), "sha256:imported", true, true},
	} {
		p := &corev1.Pod{Spec: *template, Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "a", ImageID: c.a}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "b", ImageID: c.b}}}}
		_, whole, _ := Read(template, p)
		if whole != c.whole || Tells(template, p) != c.tells {
			t.Errorf("with %q and %q it knows all: %t, and may: %t; want %t, %t", c.a, c.b, whole, !c.tells, c.whole, c.tells)
		}
	}
}

// A volume is known once a container that mounts it tells of it, or all of them have their image and none does.
func TestWhenVolumesAreKnown(t *testing.T) {
	of := "sha256:" + strings.Repeat("a1", 32)
	mounts := []corev1.VolumeMount{{Name: "v"}}
	never, demo := podtest.ImageVolume("never", "rules:v2"), "demo@"+of
	never.Image.PullPolicy = corev1.PullNever
	template := &corev1.PodSpec{
		Volumes: []corev1.Volume{
			podtest.ImageVolume("v", "rules:v1"), podtest.ImageVolume("fixed", "rules@"+of), never, {Name: "data"},
		},
		InitContainers: []corev1.Container{{Name: "i", Image: demo}},
		Containers:     []corev1.Container{{Name: "a", Image: demo, VolumeMounts: mounts}, {Name: "b", Image: demo}},
	}
	says := []corev1.VolumeMountStatus{{Name: "data"}, podtest.Mounted("v", "docker.io/library/rules@"+of)}
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
		p := &corev1.Pod{Spec: *c.spec}
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses = []status{c.init}, c.status
		images, whole, made := Read(template, p)
		got := ""
		if len(images) > 0 {
			got = images[0].Digest
		}
		another := len(images) > 1 || whole && images[0].Image != "rules:v1"
		if whole != c.whole || made != c.made || got != c.want || another {
			t.Errorf("%s: it tells %v, whole %t, made %t; want %q, %t, %t",
				name, images, whole, made, c.want, c.whole, c.made)
		}
	}
}
