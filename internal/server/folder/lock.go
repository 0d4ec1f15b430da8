package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrInUse says that a server works with the folder.
var ErrInUse = errors.New("is in use by another everynode server")

// Lock makes sure that one server at a time uses a data directory. The kernel
// gives it up when the process ends, however it ends. forget removes the file
// if it was made here, for a data directory that stays unused.
func Lock(dataDir string) (release, forget func(), err error) {
	path := filepath.Join(dataDir, "server.lock")
	_, before := os.Stat(path)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil, fmt.Errorf("lock %s: %w", path, err)
		}
		owner := "another process"
		if pid, err := os.ReadFile(path); err == nil && len(pid) > 0 {
			owner = "process " + strings.TrimSpace(string(pid))
		}
		return nil, nil, fmt.Errorf("the data directory %s %w (%s); stop that one first, or choose another --data-dir",
			dataDir, ErrInUse, owner)
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("write %s: %w", path, err)
	}
	forget = func() {
		if errors.Is(before, fs.ErrNotExist) {
			_ = os.Remove(path)
		}
	}
	return func() { f.Close() }, forget, nil
}
