package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cniResults is where CNI's library, in runtimes, notes what it gave to sandboxes.
const cniResults = "/var/lib/cni/results"

// forgetTorn removes what was noted in a folder of a sandbox's network and cannot be read, and says whether there was
// any. The notes are not flushed to the disk: one that was young when the machine lost its power is empty, and the
// runtime would never give up the sandbox for it. Without a note it does, and the network itself went with the power.
func forgetTorn(dir, sandbox string) (bool, error) {
	names, err := readNames(dir)
	if err != nil {
		return false, err
	}
	found := false
	for _, name := range names {
		// NETWORK-SANDBOX-DEVICE
		if sandbox == "" || !strings.Contains(name, "-"+sandbox+"-") {
			continue
		}
		note := filepath.Join(dir, name)
		content, err := os.ReadFile(note)
		if errors.Is(err, fs.ErrNotExist) || err == nil && json.Valid(content) {
			continue
		}
		if err == nil {
			err = os.Remove(note)
		}
		if err != nil {
			return found, fmt.Errorf("remove a torn note of a sandbox's network: %w", err)
		}
		found = true
	}
	return found, nil
}

func readNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}
