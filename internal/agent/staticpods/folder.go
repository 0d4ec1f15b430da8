package staticpods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// lookEvery is how often the folder is looked through. It needs no notification to be quick, and works on every file
// system.
const lookEvery = time.Second

// maxFile bounds what is read of a file, in bytes; the API takes no larger object either.
const maxFile = 3 << 20

// Config says what to read and whom to tell. All fields must be set.
type Config struct {
	// Path is the folder of the manifests, or one manifest. It need not be there yet.
	Path string
	// NodeName is the node that the pods are for.
	NodeName string
	// OnPods gets all static pods, sorted by file: once at the start, and whenever a pod comes or goes.
	OnPods func(pods []*corev1.Pod)
	// OnProblem hears once of each file, or of the folder, that cannot be used as it is now.
	OnProblem func(path string, err error)
	// Clock tells when to look again.
	Clock clock.WithTicker
}

// Folder reads the static pods of a node.
type Folder struct {
	cfg   Config
	files map[string]*file
	// problem is what was last said of the folder.
	problem string
	begun   bool
}

// file is what is known of one manifest.
type file struct {
	stamp stamp
	// read is the stamp at which the content was read; it differs from stamp while somebody may still be writing.
	read    stamp
	pod     *corev1.Pod
	problem string
}

// stamp changes when a file is written or replaced.
type stamp struct {
	size     int64
	modified time.Time
}

// NewFolder returns a Folder; Run reads it.
func NewFolder(cfg Config) *Folder { return &Folder{cfg: cfg, files: map[string]*file{}} }

// Run reads the folder now and then every second, until ctx ends.
func (f *Folder) Run(ctx context.Context) {
	ticker := f.cfg.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		f.look()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// look reads what changed, and tells.
func (f *Folder) look() {
	before := f.pods()
	paths, err := f.list()
	if err != nil {
		f.complain(&f.problem, f.cfg.Path, err)
		if !f.begun {
			f.tell()
		}
		return // what runs, runs on: a folder that cannot be read is not an empty one
	}
	f.problem = ""
	for path := range f.files {
		if _, ok := paths[path]; !ok {
			delete(f.files, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		f.note(path, paths[path])
	}
	if !f.begun || !slices.Equal(before, f.pods()) {
		f.tell()
	}
}

func (f *Folder) tell() {
	f.begun = true
	f.cfg.OnPods(f.pods())
}

// list returns the manifests there are. A folder that is not there has none.
func (f *Folder) list() (map[string]stamp, error) {
	info, err := os.Stat(f.cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at static pods: %w", err)
	}
	if !info.IsDir() {
		return map[string]stamp{f.cfg.Path: stampOf(info)}, nil
	}
	entries, err := os.ReadDir(f.cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("look for static pods: %w", err)
	}
	paths := make(map[string]stamp, len(entries))
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		path := filepath.Join(f.cfg.Path, entry.Name())
		// A link counts as what it leads to.
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			paths[path] = stampOf(info)
		}
	}
	return paths, nil
}

func stampOf(info fs.FileInfo) stamp { return stamp{size: info.Size(), modified: info.ModTime()} }

// note reads the file if it changed. After the start it waits until the file is the same at two looks, because somebody
// may be in the middle of writing it.
func (f *Folder) note(path string, now stamp) {
	known, ok := f.files[path]
	if !ok {
		known = &file{}
		f.files[path] = known
	}
	stable := !f.begun || known.stamp == now
	known.stamp = now
	if known.read == now || !stable {
		return
	}
	known.read = now
	pod, err := f.read(path)
	if err == nil {
		err = f.unique(path, pod)
	}
	if err != nil {
		f.complain(&known.problem, path, err)
		return
	}
	known.problem = ""
	if known.pod == nil || known.pod.UID != pod.UID {
		known.pod = pod
	}
}

func (f *Folder) read(path string) (*corev1.Pod, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("is %d bytes long, more than %d", info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return Parse(data, path, f.cfg.NodeName)
}

// unique refuses a pod whose name another file has.
func (f *Folder) unique(path string, pod *corev1.Pod) error {
	for other, known := range f.files {
		if other != path && known.pod != nil && known.pod.Name == pod.Name && known.pod.Namespace == pod.Namespace {
			// The other file must be seen to go before this one is looked at again.
			f.files[path].read = stamp{}
			return fmt.Errorf("pod %s/%s is also in %s", pod.Namespace, pod.Name, other)
		}
	}
	return nil
}

// complain tells of a problem that was not told of yet.
func (f *Folder) complain(last *string, path string, err error) {
	if text := err.Error(); text != *last {
		*last = text
		f.cfg.OnProblem(path, err)
	}
}

// pods lists the pods by file.
func (f *Folder) pods() []*corev1.Pod {
	out := make([]*corev1.Pod, 0, len(f.files))
	for _, path := range slices.Sorted(maps.Keys(f.files)) {
		if pod := f.files[path].pod; pod != nil {
			out = append(out, pod)
		}
	}
	return out
}
