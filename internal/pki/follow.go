package pki

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const (
	// followInterval is after how long a change of the directory is noticed.
	followInterval = 2 * time.Second
	// FollowTime is after how long a server that runs uses what was replaced.
	FollowTime = followInterval + time.Second
	// renewInterval is how often certificates are looked at that end soon.
	renewInterval = 12 * time.Hour
)

// Run follows the directory and renews certificates until ctx ends.
func (b *Bundle) Run(ctx context.Context) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	renew, failed := b.opts.Clock.Now().Add(renewInterval), ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, look := b.opts.Clock.Now(), b.look()
		if !b.changed(look) && now.Before(renew) || look == failed {
			continue
		}
		renew, failed = now.Add(renewInterval), ""
		if err := b.Reload(); err != nil {
			failed = look
			klog.FromContext(ctx).Error(
				err, "The keys and certificates cannot be used as they are; those of before stay in use", "directory", b.dir,
			)
		}
	}
}

// Reload reads the directory again, renews what ends soon, and tells those who
// listen when something is different.
func (b *Bundle) Reload() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	unlock, err := lockDirectory(b.dir)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := b.load()
	if err != nil {
		return err
	}
	before := b.state.Swap(now)
	b.seen = b.look()
	if before != nil && !before.equal(now) {
		for _, listener := range b.listeners {
			listener()
		}
	}
	return nil
}

// OnChange has f called after each change of a key or certificate. f must not block.
func (b *Bundle) OnChange(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners = append(b.listeners, f)
}

func (b *Bundle) changed(look string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return look != b.seen
}

// look describes the directory so that each replaced file makes a difference.
func (b *Bundle) look() string {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // gone since
		}
		inode := uint64(0)
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = stat.Ino
		}
		fmt.Fprintln(&out, entry.Name(), inode, info.Size(), info.ModTime().UnixNano(), info.Mode())
	}
	return out.String()
}

// lockDirectory waits until nobody else changes the directory. The kernel gives
// the lock up when the process ends.
func lockDirectory(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock the directory for keys: %w", err)
	}
	for {
		err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = d.Close() }, nil
}

func (s *state) equal(other *state) bool {
	for name, p := range s.leaves {
		q := other.leaves[name]
		if !p.cert.Equal(q.cert) || !p.key.Equal(q.key) {
			return false
		}
	}
	if !s.accounts.signing.Equal(other.accounts.signing) || len(s.accounts.previous) != len(other.accounts.previous) {
		return false
	}
	return s.cluster.equal(other.cluster) && s.nodes.equal(other.nodes) && s.front.equal(other.front)
}

func (a *authority) equal(other *authority) bool {
	return string(certificatesPEM(a.chain())) == string(certificatesPEM(other.chain()))
}
