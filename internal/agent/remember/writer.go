package remember

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// gather is how long news gather before they are written.
	gather = 2 * time.Second
	// rest is the least time between two times that the file is written; when writing
	// takes long it is restful times as long: endpoints of large clusters come and go
	// all the time.
	rest    = 10 * time.Second
	restful = 100
	// trifleWait is how long news wait that are no reason to write, if no others come.
	trifleWait = time.Hour
	// brokenSuffix is for a file that could not be read.
	brokenSuffix = ".broken"
)

// file is one that is written again when there are news.
type file struct {
	path, what string
	clock      clock.WithTicker
	news       chan struct{}
	trifles    chan struct{}
	replace    func() error

	mu     sync.Mutex // guards all below
	broken bool
	// written is the file as it was written last; nil for not yet.
	written fs.FileInfo
}

// note says that there are news.
func (f *file) note() { poke(f.news) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and what is not written then.
func (f *file) run(ctx context.Context) {
	f.begin()
	var late <-chan time.Time
	for pause := gather; ; {
		select {
		case <-ctx.Done():
			if late != nil || len(f.news)+len(f.trifles) > 0 {
				f.write(ctx)
			}
			return
		case <-f.trifles:
			if late == nil {
				late = f.clock.After(trifleWait)
			}
			continue
		case <-late:
		case <-f.news:
		}
		select {
		case <-ctx.Done():
		case <-f.clock.After(pause):
		}
		began := f.clock.Now()
		late = nil
		f.write(ctx)
		pause = max(rest, restful*f.clock.Since(began))
	}
}

// begin takes a file of an earlier run as it is.
func (f *file) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	is, err := os.Stat(f.path)
	if err == nil && !f.broken {
		f.written = is
	}
}

func (f *file) write(ctx context.Context) {
	if err := f.save(); err != nil {
		klog.FromContext(ctx).Error(err, "What the node knows is not kept for its next start", "of", f.what)
	}
}

func (f *file) save() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		if err := os.Rename(f.path, f.path+brokenSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("put %s aside, which is broken: %w", f.path, err)
		}
		f.broken = false
	}
	if err := f.replace(); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	var err error
	f.written, err = os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

// Mend implements mend.Part. The file is written again soon.
func (f *file) Mend() (mended []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.written == nil {
		return nil, nil
	}
	now, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look after %s: %w", f.path, err)
	case os.SameFile(now, f.written) && now.Size() == f.written.Size() && now.ModTime().Equal(f.written.ModTime()):
		return nil, nil
	}
	f.broken, f.written = err == nil, nil
	f.note()
	return []string{f.path}, nil
}

// Run keeps the file up to date until ctx ends, and does so a last time then.
func (k *PodKeeper) Run(ctx context.Context) error {
	k.file.run(ctx)
	return nil
}

// Note says that something changed without which pods would not start as they were. It does not block.
func (k *PodKeeper) Note() { k.file.note() }

// Mend implements mend.Part.
func (k *PodKeeper) Mend() (mended []string, err error) { return k.file.Mend() }

// NoteToken says that a pod has a new token; one in place of an older one can wait for an hour. It does not block.
func (k *PodKeeper) NoteToken(first bool) {
	if first {
		k.file.note()
		return
	}
	poke(k.file.trifles)
}
