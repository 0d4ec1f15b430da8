package hollow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri/labels"
	"github.com/everynode/everynode/internal/agent/cri/logs"
	"github.com/everynode/everynode/internal/agent/hollow"
	"github.com/everynode/everynode/internal/agent/images"
)

// What the disk of the test holds.
const (
	logSize, logFiles = 4 << 10, 3
	diskSize          = 100
	high, low         = 85, 80
	daemonImage       = "hollow/demo"
)

// disk is that of images and logs. It is the runtime's side of both: containers write to the file that they have open,
// whatever its name has become, until they are told to open their log again.
type disk struct {
	*hollow.Runtime
	logs  *logs.Logs
	root  string
	links string

	mu       sync.Mutex
	running  map[string]*logged
	reopened int
	images   map[string]int64
	removed  int
}

// logged is a container that writes a log.
type logged struct {
	pod     *corev1.Pod
	name    string
	attempt uint32
	path    string
	ended   bool
	file    *os.File
}

func newDisk(t *testing.T, root string) *disk {
	t.Helper()
	d := &disk{Runtime: hollow.NewRuntime(clock.RealClock{}), root: filepath.Join(root, "pods"), links: filepath.Join(root, "links"),
		running: map[string]*logged{}, images: map[string]int64{daemonImage: 10}}
	err := os.MkdirAll(d.root, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	d.logs = logs.New(containers{d: d}, d.root, d.links, logSize, logFiles)
	return d
}

// collector is as an agent's.
func (d *disk) collector() *images.Collector {
	return images.NewCollector(images.CollectorConfig{
		Service: shelf{d: d}, High: high, Low: low, MinAge: 2 * time.Minute, Clock: clock.RealClock{},
		Used:  func(context.Context) (map[string]bool, error) { return map[string]bool{daemonImage: true}, nil },
		Space: func(context.Context) (int64, int64, error) { return diskSize - d.full(), diskSize, nil },
		Warn:  func(reason, message string) { klog.Info(reason, message) },
	})
}

func (d *disk) full() (n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, size := range d.images {
		n += size
	}
	return n
}

// pull has somebody bring images that no pod uses.
func (d *disk) pull(name string, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.images[name] = size
}

// write has each container that runs write some lines.
func (d *disk) write(t *testing.T, size int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.running {
		if _, err := c.file.Write(bytes.Repeat([]byte("x"), size)); err != nil && !c.ended {
			t.Fatal(err)
		}
	}
}

// StartContainer implements pods.Runtime.
func (d *disk) StartContainer(ctx context.Context, pod *corev1.Pod, name, id string, attempt uint32) error {
	c := &logged{pod: pod, name: name, attempt: attempt, path: filepath.Join(d.logs.Directory(pod), logs.Path(name, attempt))}
	d.mu.Lock()
	err := errors.Join(os.MkdirAll(filepath.Dir(c.path), 0o755), c.open(), d.logs.Link(pod, name, id, attempt))
	d.running[id] = c
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.Runtime.StartContainer(ctx, pod, name, id, attempt)
}

func (c *logged) open() (err error) {
	if c.file != nil {
		err = c.file.Close()
	}
	f, opened := os.OpenFile(c.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	c.file = f
	return errors.Join(err, opened)
}

// StopContainer implements pods.Runtime.
func (d *disk) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	d.mu.Lock()
	if c := d.running[id]; c != nil && !c.ended {
		c.ended = true
		_ = c.file.Close()
	}
	d.mu.Unlock()
	return d.Runtime.StopContainer(ctx, id, grace)
}

// RemoveContainer implements pods.Runtime.
func (d *disk) RemoveContainer(ctx context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.running[id]; c != nil {
		delete(d.running, id)
		err := errors.Join(d.logs.Remove(c.path), os.Remove(d.logs.LinkPath(c.pod.Name, c.pod.Namespace, c.name, id)))
		if err != nil {
			return err
		}
	}
	return d.Runtime.RemoveContainer(ctx, id)
}

// containers is what the runtime says of them to who rotates logs.
type containers struct {
	internalapi.RuntimeService
	d *disk
}

func (s containers) ListContainers(context.Context, *runtimeapi.ContainerFilter) (out []*runtimeapi.Container, _ error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for id, c := range s.d.running {
		if c.ended {
			continue
		}
		out = append(out, &runtimeapi.Container{Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
			Labels: map[string]string{labels.PodName: c.pod.Name, labels.PodNamespace: c.pod.Namespace,
				labels.PodUID: string(c.pod.UID), labels.ContainerName: c.name}})
	}
	return out, nil
}

func (s containers) ReopenContainerLog(_ context.Context, id string) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.reopened++
	return s.d.running[id].open()
}

// shelf is what the runtime says of images.
type shelf struct {
	internalapi.ImageManagerService
	d *disk
}

func (s shelf) ListImages(context.Context, *runtimeapi.ImageFilter) (out []*runtimeapi.Image, _ error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for id, size := range s.d.images {
		out = append(out, &runtimeapi.Image{Id: id, Size: uint64(size)})
	}
	return out, nil
}

func (s shelf) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	delete(s.d.images, spec.Image)
	s.d.removed++
	return nil
}

// check fails if images or logs take more than they may.
func (d *disk) check(t *testing.T) {
	t.Helper()
	if full := d.full(); full > high+3 { // what came since the last look
		t.Errorf("the disk of images is %d %% full", full)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.images[daemonImage] == 0 {
		t.Error("the image that the daemons use is gone")
	}
	files := map[string]int{}
	err := filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.IsDir() {
			return nil // a log was just rotated
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info.Size() > logSize+perMinute {
			t.Errorf("%s has %d KB", path, info.Size()>>10)
		}
		files[filepath.Dir(path)]++
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for folder, n := range files {
		if n > 2*logFiles { // one container that runs, and the last that did
			t.Errorf("%s has %d logs", folder, n)
		}
	}
	links, err := os.ReadDir(d.links)
	if err != nil || len(links) != len(d.running) {
		t.Errorf("%d links to logs of %d containers, %v", len(links), len(d.running), err)
	}
}

// files counts what lies below folders.
func files(t *testing.T, folders ...string) (n int) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(string, fs.DirEntry, error) error { n++; return nil })
		if err != nil {
			t.Error(err)
		}
	}
	return n
}

// perMinute is what a container writes at once, in each minute: more than a log may have.
const perMinute = 8 << 10

// minute is what happens to the disk in each minute alone: containers write, and each hour somebody brings an image.
func (d *disk) minute(t *testing.T, m int) {
	t.Helper()
	d.write(t, perMinute)
	if m%60 == 0 {
		d.pull(fmt.Sprintf("unused-%d", m), 3)
	}
}
