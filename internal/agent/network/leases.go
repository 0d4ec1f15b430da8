package network

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/files/wholefile"
)

// podDevice is what runtimes call the device that a pod has in our network.
const podDevice = "eth0"

// Leases are the notes of the plugin that gives pods their addresses.
type Leases struct{ dir string }

// OwnLeases are those of our network.
func OwnLeases() Leases { return LeasesIn(filepath.Join(leases, networkName)) }

// LeasesIn are those in a folder, which is that of one network.
func LeasesIn(dir string) Leases { return Leases{dir} }

// Note notes which sandbox has which address, by address, where that is not noted any more, and returns what
// was missing. The plugin that gives addresses knows nothing else of those in use: once /run was emptied, the next pod
// would get the address of one that runs.
func (l Leases) Note(sandboxes map[string]string) (missing []string, err error) {
	for _, address := range slices.Sorted(maps.Keys(sandboxes)) {
		_, err := os.Lstat(filepath.Join(l.dir, address))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, address)
		} else if err != nil {
			return nil, fmt.Errorf("look which addresses of pods are in use: %w", err)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	unlock, err := lock(l.dir)
	if err != nil {
		return nil, fmt.Errorf("note which addresses of pods are in use: %w", err)
	}
	defer unlock()
	for _, address := range missing {
		// host-local's form. It finds by it what it is to give back.
		content := wholefile.Bytes([]byte(sandboxes[address] + "\r\n" + podDevice))
		err := wholefile.Create(filepath.Join(l.dir, address), 0o600, content)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("note which addresses of pods are in use: %w", err)
		}
	}
	return missing, nil
}

// lock keeps the plugin from giving addresses until unlock is called.
func lock(dir string) (unlock func(), err error) {
	err = os.MkdirAll(dir, 0o755)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
