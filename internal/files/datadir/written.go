package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/version"
)

// Version is the version of a server's data folder: of its files and of how objects are
// stored. It grows when a program of before could not use what a new one has written.
// Folders without a file about that are from before there was one, have the version 0,
// and are used as they are. A new minor version of etcd is a new version of the data: an older
// etcd does not start on what it has written.
const Version = 1

// WrittenFile is the name of the file that says who wrote a folder.
const WrittenFile = "version.json"

// Written is what it says.
type Written struct {
	// Data is the version of the folder.
	Data int `json:"data"`
	// Everynode and Kubernetes are the versions of the program that wrote it last.
	Everynode  string `json:"everynode"`
	Kubernetes string `json:"kubernetes"`
}

// ThisProgram returns what this program writes about itself.
func ThisProgram() Written {
	return Written{Data: Version, Everynode: version.Version, Kubernetes: version.Kubernetes()}
}

// ReadWritten returns who wrote the folder; nobody if it does not say.
func ReadWritten(dir string) (w Written, err error) {
	path := filepath.Join(dir, WrittenFile)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &w)
	}
	if err == nil && w.Data < 1 {
		err = errors.New("it names no version of data")
	}
	if err != nil {
		return w, fmt.Errorf("read which version wrote the data from %s: %w; if no newer everynode has run there, remove "+
			"that file", path, err)
	}
	return w, nil
}

// CheckWritten refuses a folder that a program has written whose data this one cannot use.
func CheckWritten(dir string, here Written) error {
	before, err := ReadWritten(dir)
	if err != nil {
		return err
	}
	if before.Data > here.Data {
		return fmt.Errorf("the data in %s is of everynode %s and has version %d, and this is everynode %s, which knows "+
			"data up to version %d; start that version or a newer one, or restore a backup from before the upgrade into "+
			"another folder",
			dir, before.Everynode, before.Data, here.Everynode, here.Data)
	}
	return nil
}

// Sign writes down who writes the folder from now on.
func Sign(dir string, here Written) error {
	if before, err := ReadWritten(dir); err == nil && before == here {
		return nil
	}
	content, err := json.Marshal(here)
	if err != nil {
		return fmt.Errorf("encode which version writes the data: %w", err)
	}
	if err := wholefile.Write(filepath.Join(dir, WrittenFile), 0o600, wholefile.Bytes(append(content, '\n'))); err != nil {
		return fmt.Errorf("write which version writes the data: %w", err)
	}
	return nil
}
