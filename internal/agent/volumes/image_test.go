package volumes

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/pod/podtest"
)

// The image of a volume is asked for once, so all containers of a pod have the same, whatever its tag names by then.
func TestImageOfAVolume(t *testing.T) {
	m, _ := newTest(t)
	asked := 0
	m.cfg.Image = func(_ context.Context, _ *corev1.Pod, source *corev1.ImageVolumeSource) (Image, error) {
		asked++
		return Image{Ref: fmt.Sprint("sha256:", asked), Digest: fmt.Sprint(source.Reference, "@sha256:", asked)}, nil
	}
	pod := podWith(podtest.ImageVolume("rules", "rules"))
	for range 2 {
		setUp(t, m, pod)
		got := mountOf(t, m, pod, corev1.VolumeMount{MountPath: "/rules", SubPath: "a"})
		want := Mount{Name: "rules", ContainerPath: "/rules", Image: Image{Ref: "sha256:1", Digest: "rules@sha256:1"}, ImagePath: "a",
			ReadOnly: true, Propagation: corev1.MountPropagationNone}
		if got != want {
			t.Errorf("the mount is %+v, want %+v", got, want)
		}
	}
}
