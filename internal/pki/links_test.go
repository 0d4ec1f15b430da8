package pki

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// elsewhere moves a file to another disk, to which a link leads.
func elsewhere(t *testing.T, dir, name string) (path, there string) {
	t.Helper()
	path, there = filepath.Join(dir, name), filepath.Join(t.TempDir(), name)
	if err := errors.Join(os.Rename(path, there), os.Symlink(there, path)); err != nil {
		t.Fatal(err)
	}
	return path, there
}

func refusedFor(t *testing.T, err error, path, words string) {
	t.Helper()
	var named *keyfile.Error
	if !errors.As(err, &named) || named.Path != path || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v, want that it %s", filepath.Base(path), err, words)
	}
}

// A key that is kept on another disk is read there, and no change puts one beside the data.
func TestKeysThatAreLinks(t *testing.T) {
	other := serverKeys(t, nil, "10.0.0.1")
	shared, err := ExportCluster(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(dir string) error{
		"ca.key":              func(dir string) error { return Rotate(dir, ClusterAuthority, start) },
		"node-ca.crt":         func(dir string) error { return Rotate(dir, NodeAuthority, start) },
		"service-account.key": func(dir string) error { return Rotate(dir, ServiceAccounts, start) },
		"front-proxy-ca.key":  func(dir string) error { return AdoptCluster(dir, shared, time.Now()) },
	} {
		dir := t.TempDir()
		load(t, dir, start)
		path, there := elsewhere(t, dir, name)
		load(t, dir, start)
		before, err := ExportCluster(dir)
		if err != nil {
			t.Fatal(err)
		}
		refusedFor(t, change(dir), path, "is a link to "+there)
		if to, err := os.Readlink(path); err != nil || to != there {
			t.Errorf("%s: the link leads to %q, %v", name, to, err)
		}
		after, err := ExportCluster(dir)
		if err != nil {
			t.Fatal(err)
		}
		for file := range before {
			if !bytes.Equal(before[file], after[file]) {
				t.Errorf("%s: %s is another, after a change that was refused", name, file)
			}
		}
		load(t, dir, start)

		// The disk is away: nothing is made again in its place.
		if err := os.Remove(there); err != nil {
			t.Fatal(err)
		}
		_, err = LoadOrCreate(dir, options(start))
		refusedFor(t, err, path, "is a link to "+there+", where there is nothing")
	}

	// The whole folder may be elsewhere.
	dir := filepath.Join(t.TempDir(), "pki")
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	load(t, dir, start)
	if err := Rotate(dir, ClusterAuthority, start.Add(time.Hour)); err != nil {
		t.Errorf("in a folder that is a link: %v", err)
	}
}
