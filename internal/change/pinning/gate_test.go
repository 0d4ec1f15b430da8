package pinning

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/pod/podtest"
)

// TestWhoRunsOtherBits: only who was made by tag, surely after the digests were known, and says another digest.
func TestWhoRunsOtherBits(t *testing.T) {
	noon := metav1.NewTime(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))
	one, two := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	template := &corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "demo:v1"}, {Name: "b", Image: "local:1", ImagePullPolicy: corev1.PullNever}}}
	for name, c := range map[string]struct {
		change func(*corev1.Pod, *v1alpha1.PinnedTemplate)
		want   bool
	}{
		"other bits": {func(*corev1.Pod, *v1alpha1.PinnedTemplate) {}, true},
		"the same bits": {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) {
			p.Status.ContainerStatuses[0].ImageID = "docker.io/library/demo@" + one
		}, false},
		"nothing yet":           {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) { p.Status.ContainerStatuses = nil }, false},
		"nobody knows which":    {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) { p.Status.ContainerStatuses[0].ImageID = two }, false},
		"an image never pulled": {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) { p.Status.ContainerStatuses[0].Name = "b" }, false},
		"made with the digest":  {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) { p.Spec.Containers[0].Image = "demo@" + two }, false},
		"hardened by somebody":  {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) { p.Spec.Containers[0].Image = "demo:v1-hardened" }, false},
		"by tag and digest":     {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) { p.Spec.Containers[0].Image = "demo:v1@" + two }, false},
		"by its whole name": {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) {
			p.Spec.Containers[0].Image = "docker.io/library/demo:v1"
		}, false},
		"made with another one's image": {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) {
			p.Status.ContainerStatuses[0].ImageID = "mirror.example.com/demo@" + two
		}, false},
		"made before":                           {func(_ *corev1.Pod, k *v1alpha1.PinnedTemplate) { k.Since = &metav1.Time{Time: noon.Add(time.Hour)} }, false},
		"just after":                            {func(_ *corev1.Pod, k *v1alpha1.PinnedTemplate) { k.Since = &metav1.Time{Time: noon.Add(-skew)} }, false},
		"noted by who did not write since when": {func(_ *corev1.Pod, k *v1alpha1.PinnedTemplate) { k.Since = nil }, false},
		"no digest is known":                    {func(_ *corev1.Pod, k *v1alpha1.PinnedTemplate) { k.Images[0].Digest = "" }, false},
		"let through the gate": {func(p *corev1.Pod, _ *v1alpha1.PinnedTemplate) {
			p.Annotations = map[string]string{Annotation: Mark(noon.Time, p.Name)}
		}, false},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: noon}, Spec: *template.DeepCopy(),
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a", ImageID: "docker.io/library/demo@" + two}}}}
		known := &v1alpha1.PinnedTemplate{Since: &metav1.Time{Time: noon.Add(-time.Minute)}, Images: []v1alpha1.PinnedImage{{Image: "demo:v1", Digest: one}}}
		c.change(p, known)
		if got := RunsOther(template, known, p); got != c.want {
			t.Errorf("%s: it runs other bits: %t", name, got)
		}
	}
}

// TestWhoMountsOtherBits is TestWhoRunsOtherBits for an image volume.
func TestWhoMountsOtherBits(t *testing.T) {
	noon := metav1.NewTime(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))
	one, two := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	mounts := []corev1.VolumeMount{{Name: "v"}}
	template := &corev1.PodSpec{
		Volumes:    []corev1.Volume{podtest.ImageVolume("v", "rules:v1")},
		Containers: []corev1.Container{{Name: "a", Image: "demo@" + one, VolumeMounts: mounts}},
	}
	refers := func(to string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes[0].Image.Reference = to }
	}
	const of = "docker.io/library/rules@"
	for name, c := range map[string]struct {
		says   string
		change func(*corev1.Pod)
		want   bool
	}{
		"other bits":           {of + two, nil, true},
		"the same bits":        {of + one, nil, false},
		"its node is silent":   {"", nil, false},
		"nobody knows which":   {two, nil, false},
		"made with the digest": {of + two, refers("rules@" + two), false},
		"hardened by somebody": {of + two, refers("rules:hard"), false},
		"no volume any more":   {of + two, func(p *corev1.Pod) { p.Spec.Volumes = nil }, false},
		"let through the gate": {of + two, func(p *corev1.Pod) {
			p.Annotations = map[string]string{Annotation: Mark(noon.Time, p.Name)}
		}, false},
	} {
		said := []corev1.VolumeMountStatus{podtest.Mounted("v", c.says)}
		status := corev1.ContainerStatus{Name: "a", ImageID: "demo@" + one, VolumeMounts: said}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: noon}, Spec: *template.DeepCopy(),
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}}}
		if c.change != nil {
			c.change(p)
		}
		known := &v1alpha1.PinnedTemplate{Since: &metav1.Time{Time: noon.Add(-time.Minute)}, Images: []v1alpha1.PinnedImage{{Image: "rules:v1", Digest: one}}}
		if got := RunsOther(template, known, p); got != c.want {
			t.Errorf("%s: it runs other bits: %t", name, got)
		}
	}
}
