package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/local/layout"
)

const (
	// logLimit is the size in bytes from which on a log is begun again; what was in it is kept in one file beside it.
	logLimit = 10 << 20
	// logInterval is how often the logs are looked at.
	logInterval = 10 * time.Second
	// oldLog ends the name of the file with what was in a log before.
	oldLog = ".1"
)

// boundLogs keeps the logs of the cluster's processes from filling the disk, until ctx ends.
func boundLogs(ctx context.Context, dataDir string) {
	ticker := time.NewTicker(logInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, path := range clusterLogs(dataDir) {
			if err := boundLog(path, logLimit); err != nil {
				klog.FromContext(ctx).Error(err, "A log was not begun again")
			}
		}
	}
}

// clusterLogs are the logs of the processes that the supervisor started, and its own.
func clusterLogs(dataDir string) []string {
	p := layout.Plan{DataDir: dataDir}
	out := []string{SupervisorLog(dataDir), p.ServerLog()}
	others, _ := filepath.Glob(filepath.Join(filepath.Dir(p.ServerLog()), "server-*.log"))
	out = append(out, others...)
	nodes, err := os.ReadDir(filepath.Dir(p.NodeDir("any")))
	if err != nil {
		return out // simulated nodes have no folders
	}
	for _, node := range nodes {
		out = append(out, p.ContainerdLog(node.Name()), p.AgentLog(node.Name()))
	}
	return out
}

// boundLog begins a log again if it is larger than limit. Its writer goes on with the file that it has: it appends, so
// it is enough to cut the file. What it writes between the end of the copy and the cut is lost. Pods may write to a
// node's folder of logs, so no link is followed out of it.
func boundLog(path string, limit int64) (err error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() <= limit {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("begin %s again: %w", path, err)
		}
	}()
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(path)
	log, err := dir.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	// Made again, so that nobody's link and nobody's open file is written to.
	if err := dir.Remove(name + oldLog); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old, err := dir.OpenFile(name+oldLog, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	// Of one that grew while nobody looked its end is kept.
	_, err = io.Copy(old, io.NewSectionReader(log, max(0, info.Size()-2*limit), 4*limit))
	if err = errors.Join(err, old.Close()); err != nil {
		// On a full disk the old file goes: it is the log that fills it.
		err = errors.Join(err, dir.Remove(name+oldLog))
	}
	return errors.Join(err, log.Truncate(0))
}
