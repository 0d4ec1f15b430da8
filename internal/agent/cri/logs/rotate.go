// Package logs keeps the logs of containers: where they are, the links by which log collectors find them, and that they
// stay small. Whoever can write among them may have put links there; none is followed.
package logs

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri/labels"
	"github.com/everynode/everynode/internal/untrusted/plainfile"
)

// How container logs are rotated.
const (
	rotateEvery = 10 * time.Second
	// defaultLogSize is the size in bytes at which a log is rotated, defaultLogFiles how many files a container has at
	// most.
	defaultLogSize  = 10 << 20
	defaultLogFiles = 5

	rotatedTime = "20060102-150405"
	compressed  = ".gz"
	unfinished  = ".tmp"
)

// Logs are the logs of all containers, and the links by which log collectors find them.
type Logs struct {
	service     internalapi.RuntimeService
	root, links string
	maxSize     int64
	maxFiles    int
}

// New keeps logs below a folder, and links to them in another. A log is rotated when it has maxSize bytes, and
// there are maxFiles files of it at most; the defaults, for 0, are 10 MiB and 5.
func New(service internalapi.RuntimeService, root, links string, maxSize int64, maxFiles int) *Logs {
	return &Logs{service: service, root: root, links: links,
		maxSize: cmp.Or(maxSize, defaultLogSize), maxFiles: cmp.Or(maxFiles, defaultLogFiles)}
}

// Rotate keeps the logs of running containers small until ctx ends.
func (l *Logs) Rotate(ctx context.Context) {
	ticker := time.NewTicker(rotateEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if err := l.RotateAll(ctx, now); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not rotate container logs")
			}
		}
	}
}

// RotateAll rotates the logs that have become too large. It goes on after errors and returns them joined.
func (l *Logs) RotateAll(ctx context.Context, now time.Time) error {
	list, err := l.service.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		return fmt.Errorf("list running containers: %w", err)
	}
	var errs []error
	for _, c := range list {
		name := c.Labels[labels.ContainerName]
		if name == "" {
			continue // not a pod's
		}
		dir := logFolder(c.Labels[labels.PodNamespace], c.Labels[labels.PodName], c.Labels[labels.PodUID])
		err := l.rotateLarge(ctx, c.Id, filepath.Join(l.root, dir, Path(name, c.GetMetadata().GetAttempt())), now)
		if err != nil {
			errs = append(errs, fmt.Errorf("rotate the log of container %s: %w", c.Id, err))
		}
	}
	return errors.Join(errs...)
}

// rotateLarge rotates the log if it has become too large, and begins it again if it is not there. Whoever can write
// into the folder of logs may have put a link there,
// or something else than a file: this process has more rights than he.
func (l *Logs) rotateLarge(ctx context.Context, id, path string, now time.Time) error {
	folder, err := plainfile.Folder(l.root, filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		folder, err = l.makeLogFolder(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	name := filepath.Base(path)
	info, err := folder.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Somebody removed it, or an agent was killed while it rotated. The runtime writes on into a file without this
		// name.
		if err := l.service.ReopenContainerLog(ctx, id); err != nil {
			return fmt.Errorf("begin a log that was removed again: %w", err)
		}
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w", path, plainfile.ErrNotPlain)
	case info.Size() < l.maxSize:
		return nil
	}
	return l.rotate(ctx, id, folder, name, now)
}

// makeLogFolder makes a folder below that of the logs, and nothing outside of it.
func (l *Logs) makeLogFolder(path string) (folder *os.Root, err error) {
	below, err := filepath.Rel(l.root, path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(l.root)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := root.MkdirAll(below, 0o755); err != nil {
		return nil, fmt.Errorf("make a folder of logs that was removed: %w", err)
	}
	return plainfile.Folder(l.root, path)
}

// rotate moves the log aside and has the runtime begin a new one.
func (l *Logs) rotate(ctx context.Context, id string, folder *os.Root, name string, now time.Time) error {
	if err := tidy(folder, name, l.maxFiles-2); err != nil {
		return err
	}
	aside := name + "." + now.Format(rotatedTime)
	if err := folder.Rename(name, aside); err != nil {
		return fmt.Errorf("move the log aside: %w", err)
	}
	if err := l.service.ReopenContainerLog(ctx, id); err != nil {
		// The runtime still writes to the file: it must be found under its name.
		return errors.Join(fmt.Errorf("reopen the log: %w", err), folder.Rename(aside, name))
	}
	return nil
}

// logsIn are the names of a log's rotated files, oldest first.
func logsIn(folder *os.Root, name string) ([]string, error) {
	entries, err := fs.ReadDir(folder.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("find the rotated logs: %w", err)
	}
	var names []string
	for _, e := range entries { // in order of their names, and so of time
		if strings.HasPrefix(e.Name(), name+".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// tidy makes room for one more rotated file: it removes all but keep, oldest first, and compresses the rest.
func tidy(folder *os.Root, name string, keep int) error {
	all, err := logsIn(folder, name)
	if err != nil {
		return err
	}
	var kept []string
	for _, file := range all {
		info, err := folder.Lstat(file)
		if err != nil {
			return fmt.Errorf("look at a rotated log: %w", err)
		}
		// An agent was killed while it compressed, and the original is still there; or it is no log.
		if strings.HasSuffix(file, unfinished) || !info.Mode().IsRegular() {
			if err := folder.Remove(file); err != nil {
				return fmt.Errorf("remove an unfinished log: %w", err)
			}
			continue
		}
		kept = append(kept, file)
	}
	for len(kept) > keep {
		if err := folder.Remove(kept[0]); err != nil {
			return fmt.Errorf("remove an old log: %w", err)
		}
		kept = kept[1:]
	}
	for _, file := range kept {
		if !strings.HasSuffix(file, compressed) {
			if err := compress(folder, file); err != nil {
				return fmt.Errorf("compress %s: %w", file, err)
			}
		}
	}
	return nil
}

func compress(folder *os.Root, name string) error {
	in, err := plainfile.OpenIn(folder, name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	temporary := name + unfinished
	out, err := folder.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	w := gzip.NewWriter(out)
	_, err = io.Copy(w, in)
	if err = errors.Join(err, w.Close(), out.Close()); err != nil {
		return errors.Join(err, folder.Remove(temporary))
	}
	if err := folder.Rename(temporary, name+compressed); err != nil {
		return err
	}
	return folder.Remove(name)
}
