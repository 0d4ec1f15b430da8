// Package housekeeping puts together what brings images to a node, and what keeps the node from running full: pulls,
// images that are fetched before their pods, the removal of those that nobody needs, and evictions.
package housekeeping

import (
	"context"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/credentialprovider"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/evictor"
	"github.com/everynode/everynode/internal/agent/fetcher"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/measure"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// pinsFile, in the data folder, names the images that stay.
const pinsFile = "pins.json"

// Config is what these parts need of the node.
type Config struct {
	config.Config
	Images internalapi.ImageManagerService
	// Programs say with which credentials images are pulled; nil for none.
	Programs *credentialprovider.Programs
	Secrets  images.Secrets
	Events   events.Recorder
	Clock    clock.WithTicker
	// Fetched is told when the images that a pod is asked for before its turn are there, or cannot be had.
	Fetched func(uid types.UID)
	// PullSecrets are those that a service account names now.
	PullSecrets func(ctx context.Context, namespace, account string) ([]corev1.LocalObjectReference, error)
	// Info says which container runtime the node has.
	Info func(context.Context) (cri.Info, error)
}

// Keepers are the parts. None of them runs yet.
type Keepers struct {
	// Puller makes images present, for pods and for who asks before them.
	Puller    *images.Manager
	Stock     images.Stock
	Fetcher   *fetcher.Fetcher
	Collector *images.Collector
	Gauge     measure.Gauge
	Evictor   *evictor.Evictor

	config Config
}

// New makes those that bring images; Keep makes the others.
func New(ctx context.Context, c Config) *Keepers {
	k := &Keepers{config: c}
	k.Puller = k.newPuller()
	k.Fetcher = k.newFetcher(ctx)
	return k
}

// newPuller makes what makes images present, for pods and for who asks before them.
func (k *Keepers) newPuller() *images.Manager {
	c := &k.config
	settings := images.Config{
		Service: c.Images, Secrets: c.Secrets, Record: c.Events.Container, Clock: c.Clock,
		LoginFile: filepath.Join(c.KubeletDir, "config.json"), MaxPulls: c.MaxPulls,
	}
	if c.Programs != nil {
		settings.Programs = c.Programs
	}
	puller := images.New(settings)
	k.Stock = images.Stock{Manager: puller, Pinned: images.OpenPins(filepath.Join(c.DataDir, pinsFile))}
	return puller
}

// newFetcher makes what fetches images that pods are asked for before their turn.
func (k *Keepers) newFetcher(ctx context.Context) *fetcher.Fetcher {
	return fetcher.New(ctx, fetcher.Config{
		Pull: k.Puller.Fetch, PullSecrets: k.config.PullSecrets, Answered: k.config.Fetched, Clock: k.config.Clock,
		Full: func() string {
			if slices.Contains(k.Evictor.Pressures(), corev1.NodeDiskPressure) {
				return "the node is short of disk"
			}
			return ""
		},
	})
}

// Volume makes the image of a volume present, as it does those of containers.
func (k *Keepers) Volume(ctx context.Context, pod *corev1.Pod, source *corev1.ImageVolumeSource) (
	found volumes.Image, err error) {
	info, err := k.config.Info(ctx)
	if err != nil {
		return volumes.Image{}, err
	}
	if err := images.MountedBy(info.Name, info.Version); err != nil {
		return volumes.Image{}, err
	}
	image, err := k.Puller.Ensure(
		ctx, pod, &corev1.Container{Image: source.Reference, ImagePullPolicy: source.PullPolicy},
	)
	return volumes.Image{Ref: image.Ref, Digest: image.Digest}, err
}
