package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lock is held by the one process that may change a cluster. The kernel gives
// it back when that process ends, however it ends.
type lock struct{ file *os.File }

var errLocked = errors.New("locked by another process")

// acquireLock takes the data dir's lock, or returns errLocked.
func acquireLock(dataDir string) (*lock, error) {
	path := filepath.Join(dataDir, "local.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &lock{file: f}, nil
}

func (l *lock) release() { _ = l.file.Close() }

// remove takes the lock's file away; only for a data dir that stays unused.
func (l *lock) remove() { _ = os.Remove(l.file.Name()) }
