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
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// How container logs are rotated.
const (
	rotateEvery = 10 * time.Second
	// maxLogSize is the size in bytes at which a log is rotated, maxLogFiles how many files a container has at most.
	maxLogSize  = 10 << 20
	maxLogFiles = 5

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
		dir := c.Labels[labelPodNamespace] + "_" + c.Labels[labelPodName] + "_" + c.Labels[labelPodUID]
		path := filepath.Join(r.cfg.LogRoot, dir, logPath(name, c.GetMetadata().GetAttempt()))
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && info.Size() < maxLogSize) {
			continue
		}
		if err == nil {
			err = r.rotate(ctx, c.Id, path, now)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rotate the log of container %s: %w", c.Id, err))
		}
	}
	return errors.Join(errs...)
}

// rotate moves the log aside and has the runtime begin a new one.
func (r *Runtime) rotate(ctx context.Context, id, path string, now time.Time) error {
	if err := tidy(path); err != nil {
		return err
	}
	aside := path + "." + now.Format(rotatedTime)
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("move the log aside: %w", err)
	}
	if err := r.service.ReopenContainerLog(ctx, id); err != nil {
		// The runtime still writes to the file: it must be found under its name.
		return errors.Join(fmt.Errorf("reopen the log: %w", err), os.Rename(aside, path))
	}
	return nil
}

// tidy makes room for one more rotated file: it removes what is too many, oldest first, and compresses the rest.
func tidy(path string) error {
	all, err := filepath.Glob(path + ".*")
	if err != nil {
		return fmt.Errorf("find the rotated logs: %w", err)
	}
	var kept []string
	for _, file := range all {
		if strings.HasSuffix(file, unfinished) {
			// An agent was killed while it compressed; the original is still there.
			if err := os.Remove(file); err != nil {
				return fmt.Errorf("remove an unfinished log: %w", err)
			}
			continue
		}
		kept = append(kept, file)
	}
	slices.Sort(kept) // by time
	for len(kept) > maxLogFiles-2 {
		if err := os.Remove(kept[0]); err != nil {
			return fmt.Errorf("remove an old log: %w", err)
		}
		kept = kept[1:]
	}
	for _, file := range kept {
		if !strings.HasSuffix(file, compressed) {
			if err := compress(file); err != nil {
				return fmt.Errorf("compress %s: %w", file, err)
			}
		}
	}
	return nil
}

func compress(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	temporary := path + unfinished
	out, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	w := gzip.NewWriter(out)
	_, err = io.Copy(w, in)
	if err = errors.Join(err, w.Close(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, path+compressed); err != nil {
		return err
	}
	return os.Remove(path)
}
