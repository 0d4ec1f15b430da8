package agent

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/testenv/eventually"
)

// TestUnusedImagesAreRemoved fills a disk, as far as the node knows, and looks which images containerd has then.
func TestUnusedImagesAreRemoved(t *testing.T) {
	m := newMachine(t)
	const unused = "everynode.test/unused:1"
	m.importVariant(t, unused)
	has := func(image string) bool {
		list, err := cri.ListImages(t.Context(), m.services.Images)
		podstest.Must(t, err)
		return slices.ContainsFunc(list, func(i cri.ImageInfo) bool { return slices.Contains(i.Names, image) })
	}
	// What ctr has imported is told to the CRI by an event.
	eventually.Nil(t, time.Minute, "the images are there to begin with", func(context.Context) error {
		if !has(unused) || !has(pauseImage) {
			return errors.New("they are not")
		}
		return nil
	})
	if dir, err := cri.ImageFS(t.Context(), m.services.Images); err != nil || filepath.Dir(dir) != m.dir+"/root" {
		t.Errorf("images are said to be in %q, %v; want below %s", dir, err, m.dir+"/root")
	}
	runtime := cri.New(cri.Config{Service: m.services.Runtime})
	collector := images.NewCollector(images.CollectorConfig{
		Service: m.services.Images, Used: runtime.UsedImages, High: 85, Low: 80, MinAge: time.Minute,
		Clock: clock.RealClock{},
		Space: func(context.Context) (int64, int64, error) { return 0, 100, nil },
		Warn:  func(reason, message string) { t.Logf("%s: %s", reason, message) },
	})
	freed, err := collector.RemoveUnused(t.Context())
	podstest.Must(t, err)
	if has(unused) || freed <= 0 {
		t.Errorf("the image that nobody uses is still there; %d bytes were freed", freed)
	}
	// No pod runs yet, and the next one needs it.
	if !has(pauseImage) {
		t.Error("the image of sandboxes is gone")
	}
}

// importVariant imports an image that differs from the test images.
func (m *machine) importVariant(t *testing.T, image string) {
	t.Helper()
	tag, err := name.NewTag(image)
	podstest.Must(t, err)
	variant, err := mutate.Config(boxImageOf(t, filepath.Join(m.dir, "box")),
		v1.Config{Entrypoint: []string{"/box", "other"}})
	podstest.Must(t, err)
	archive := filepath.Join(m.dir, "variant.tar")
	podstest.Must(t, tarball.MultiWriteToFile(archive, map[name.Tag]v1.Image{tag: variant}))
	out, err := exec.Command("ctr", "-a", filepath.Join(m.dir, "containerd.sock"), "-n", "k8s.io", "images", "import",
		archive).CombinedOutput()
	if err != nil {
		t.Fatalf("import an image: %v\n%s", err, out)
	}
}
