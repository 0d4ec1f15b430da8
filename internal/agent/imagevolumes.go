package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/everynode/everynode/internal/agent/pods"
)

// firstWithImages is from which version on runtimes mount images. Earlier ones would mount nothing, or fail without
// saying why.
var firstWithImages = map[string]string{"containerd": "2.1.0", "cri-o": "1.31.0"}

// mountsImages says why the runtime cannot mount images as volumes; nil if it can, or if nobody knows.
func mountsImages(name, version string) error {
	first, known := firstWithImages[name]
	if !known {
		return nil
	}
	have, err := utilversion.ParseGeneric(version)
	if err != nil || have.AtLeast(utilversion.MustParseGeneric(first)) {
		return nil //nolint:nilerr // a version that nobody can read may be a good one
	}
	return fmt.Errorf("image volumes need %s %s or newer, and this node has %s", name, first, version)
}

// imageVolume makes the image of a volume present, as it does those of containers.
func (n *node) imageVolume(images pods.Images) func(context.Context, *corev1.Pod, *corev1.ImageVolumeSource) (string,
	error) {
	return func(ctx context.Context, pod *corev1.Pod, source *corev1.ImageVolumeSource) (string, error) {
		info, err := n.runtime.Info(ctx)
		if err != nil {
			return "", err
		}
		if err := mountsImages(info.Name, info.Version); err != nil {
			return "", err
		}
		image, err := images.Ensure(ctx, pod, &corev1.Container{Image: source.Reference, ImagePullPolicy: source.PullPolicy})
		return image.Ref, err
	}
}
