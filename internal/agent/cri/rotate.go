package cri

import (
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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/plainfile"
)

// How container logs are rotated.
const (
	rotateEvery = 10 * time.Second
	// defaultLogSize is the size in bytes at which a log is rotated, defaultLogFiles how many files a container has at most.
	defaultLogSize  = 10 << 20
	defaultLogFiles = 5

	rotatedTime = "20060102-150405"
	compressed  = ".gz"
	unfinished  = ".tmp"
)

// RotateLogs keeps the logs of running containers small until ctx ends.
func (r *Runtime) RotateLogs(ctx context.Context) {
	ticker := time.NewTicker(rotateEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if err := r.rotateAll(ctx, now); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not rotate container logs")
			}
		}
	}
}

// rotateAll goes on after errors and returns them joined.
func (r *Runtime) rotateAll(ctx context.Context, now time.Time) error {
	list, err := r.service.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		return fmt.Errorf("list running containers: %w", err)
	}
	var errs []error
	for _, c := range list {
		name := c.Labels[labelContainerName]
		if name == "" {
			continue // not a pod's
		}
		dir := logFolder(c.Labels[labelPodNamespace], c.Labels[labelPodName], c.Labels[labelPodUID])
		err := r.rotateLarge(ctx, c.Id, filepath.Join(r.cfg.LogRoot, dir, logPath(name, c.GetMetadata().GetAttempt())), now)
		if err != nil {
			errs = append(errs, fmt.Errorf("rotate the log of container %s: %w", c.Id, err))
		}
	}
	return errors.Join(errs...)
}

// rotateLarge rotates the log if it has become too large, and begins it again if it is not there. Whoever can write into the folder of logs may have put a link there,
// or something else than a file: this process has more rights than he.
func (r *Runtime) rotateLarge(ctx context.Context, id, path string, now time.Time) error {
	folder, err := plainfile.Folder(r.cfg.LogRoot, filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		folder, err = r.makeLogFolder(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	name := filepath.Base(path)
	info, err := folder.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Somebody removed it, or an agent was killed while it rotated. The runtime writes on into a file without this name.
		if err := r.service.ReopenContainerLog(ctx, id); err != nil {
			return fmt.Errorf("begin a log that was removed again: %w", err)
		}
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w", path, plainfile.ErrNotPlain)
	case info.Size() < r.cfg.MaxLogSize:
		return nil
	}
	return r.rotate(ctx, id, folder, name, now)
}

// makeLogFolder makes a folder below that of the logs, and nothing outside of it.
func (r *Runtime) makeLogFolder(path string) (folder *os.Root, err error) {
	below, err := filepath.Rel(r.cfg.LogRoot, path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(r.cfg.LogRoot)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := root.MkdirAll(below, 0o755); err != nil {
		return nil, fmt.Errorf("make a folder of logs that was removed: %w", err)
	}
	return plainfile.Folder(r.cfg.LogRoot, path)
}

// rotate moves the log aside and has the runtime begin a new one.
func (r *Runtime) rotate(ctx context.Context, id string, folder *os.Root, name string, now time.Time) error {
	if err := tidy(folder, name, r.cfg.MaxLogFiles-2); err != nil {
		return err
	}
	aside := name + "." + now.Format(rotatedTime)
	if err := folder.Rename(name, aside); err != nil {
		return fmt.Errorf("move the log aside: %w", err)
	}
	if err := r.service.ReopenContainerLog(ctx, id); err != nil {
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
