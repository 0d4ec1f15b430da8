package join

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/everynode/everynode/internal/agent/mend"
)

func newContents() *contents { return &contents{files: map[string][]byte{}} }

// contents are what the files of a store hold, by name.
type contents struct {
	mu    sync.Mutex
	files map[string][]byte
}

// change calls f, which makes a file hold data from now on; nil for a file that is not there.
func (k *contents) change(name string, data []byte, f func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := f()
	switch {
	case err != nil:
	case data == nil:
		delete(k.files, name)
	default:
		k.files[name] = data
	}
	return err
}

func (k *contents) get(name string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.files[name]
}

// keep notes what the files hold that an earlier run has written.
func (s store) keep() error {
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	names := []string{caFile, nodeCAFile, clientFile, servingFile, identityFile, kubeconfigFile, serversFile,
		restoredFile, unshownFile}
	for _, name := range names {
		data, err := os.ReadFile(s.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the node's identity: %w", err)
		}
		s.kept.files[name] = append([]byte{}, data...)
	}
	return nil
}

// Mend implements mend.Part. A node that the cluster refuses, or whose certificate cannot be used, has none: whoever
// removes its files does what it is told to.
func (id *Identity) Mend() (mended []string, err error) {
	if id.refused.Load() || id.stranger.Load() || !valid(id.client.Load().Leaf, id.Now()) {
		return nil, nil
	}
	k := id.store.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []mend.File
	for _, name := range slices.Sorted(maps.Keys(k.files)) {
		all = append(all, mend.File{Path: id.store.path(name), Mode: 0o600, Content: k.files[name]})
	}
	return mend.Files(all...)
}
