package agent

import (
	"context"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/fetcher"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/objects"
	"github.com/everynode/everynode/internal/agent/pods"
)

// pinsFile, in the data folder, names the images that stay.
const pinsFile = "pins.json"

// newPuller makes what makes images present, for pods and for who asks before them.
func (a *Agent) newPuller(n *node, services cri.Services, objs objects.Reader, ev events.Recorder) *images.Manager {
	config := images.Config{
		Service: services.Images, Secrets: objs.Secret, Record: ev.Container, Clock: a.clk,
		LoginFile: filepath.Join(a.cfg.KubeletDir, "config.json"), MaxPulls: a.cfg.MaxPulls,
	}
	if a.programs != nil {
		config.Programs = a.programs
	}
	puller := images.New(config)
	n.stock = images.Stock{Manager: puller, Pinned: images.OpenPins(filepath.Join(a.cfg.DataDir, pinsFile))}
	return puller
}

// newFetcher makes what fetches images that pods are asked for before their turn.
func (a *Agent) newFetcher(ctx context.Context, n *node, puller *images.Manager) *fetcher.Fetcher {
	return fetcher.New(ctx, fetcher.Config{
		Pull: puller.Fetch, Answered: func(uid types.UID) { n.pods.ImagesFetched(uid) }, Clock: a.clk,
		Full: func() string {
			if slices.Contains(n.evictor.Pressures(), corev1.NodeDiskPressure) {
				return "the node is short of disk"
			}
			return ""
		},
	})
}

// imageVolume makes the image of a volume present, as it does those of containers.
func (n *node) imageVolume(puller pods.Images) func(context.Context, *corev1.Pod, *corev1.ImageVolumeSource) (string,
	error) {
	return func(ctx context.Context, pod *corev1.Pod, source *corev1.ImageVolumeSource) (string, error) {
		info, err := n.runtime.Info(ctx)
		if err != nil {
			return "", err
		}
		if err := images.MountedBy(info.Name, info.Version); err != nil {
			return "", err
		}
		image, err := puller.Ensure(ctx, pod, &corev1.Container{Image: source.Reference, ImagePullPolicy: source.PullPolicy})
		return image.Ref, err
	}
}
