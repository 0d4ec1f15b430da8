// Package store is where scheduled backups are put: a folder, or a bucket that is spoken
// to as S3.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/files/wholefile"
)

// Store holds backups by name. A backup is there whole, or not at all.
type Store interface {
	// Names lists what is there.
	Names(ctx context.Context) ([]string, error)
	// Put stores what fill writes, and returns how large it is when it is there for good.
	Put(ctx context.Context, name string, fill func(io.Writer) error) (size int64, err error)
	// Remove takes one away. One that is gone is no error.
	Remove(ctx context.Context, name string) error
}

// Open returns the store at an address: a folder, or s3://BUCKET/PREFIX?endpoint=URL.
func Open(address string) (Store, error) {
	if !strings.Contains(address, "://") {
		if address == "" {
			return nil, errors.New("no folder is named")
		}
		return folder(address), nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "s3" {
		return nil, fmt.Errorf("%q is neither a folder nor of the form s3://BUCKET/PREFIX?endpoint=https://HOST", address)
	}
	return openBucket(u)
}

// folder is a store on a disk, best on another machine's.
type folder string

// Names implements Store.
func (f folder) Names(context.Context) (names []string, err error) {
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the backups: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Put implements Store.
func (f folder) Put(ctx context.Context, name string, fill func(io.Writer) error) (int64, error) {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return 0, fmt.Errorf("make the folder for backups: %w", err)
	}
	err := f.clear(time.Now().Add(-unfinishedFor))
	if err != nil { // On another machine's disk it may be somebody else's. It holds up no backup.
		klog.FromContext(ctx).Error(err, "Half a backup stays in the folder for backups", "folder", string(f))
	}
	path := filepath.Join(string(f), name)
	counted := &counter{ctx: ctx}
	err = wholefile.Create(path, 0o600, func(w io.Writer) error {
		counted.Writer = w
		return fill(counted)
	})
	if err != nil {
		return 0, fmt.Errorf("write the backup %s: %w", path, err)
	}
	return counted.size, nil
}

// unfinishedFor is how old half a backup is that nobody writes any more.
const unfinishedFor = 24 * time.Hour

// clear removes what processes left of backups that were killed before then.
func (f folder) clear(before time.Time) error {
	halves, err := filepath.Glob(filepath.Join(string(f), ".everynode-*.backup-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, half := range halves {
		info, err := os.Lstat(half)
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(half)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove half a backup: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Remove implements Store.
func (f folder) Remove(_ context.Context, name string) error {
	if err := os.Remove(filepath.Join(string(f), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove an old backup: %w", err)
	}
	return nil
}

// counter counts what is written, until ctx ends.
type counter struct {
	io.Writer
	ctx  context.Context //nolint:containedctx // It lives as long as one write.
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.Writer.Write(p)
	c.size += int64(n)
	return n, err
}
