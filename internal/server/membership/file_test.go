package membership

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/storage/members"
)

// Keys that other servers have as well are never made again: the others would take them.
func TestSharedKeysAreNotMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.LoadOrCreate(filepath.Join(dir, "pki"), pki.Options{}); err != nil {
		t.Fatal(err)
	}
	alone, several := (*File)(nil), &File{Name: "a", AgreedKeys: "hash"}
	for _, m := range []*File{alone, several} {
		if err := m.CheckKeys(dir); err != nil {
			t.Errorf("with all keys: %v", err)
		}
	}
	for _, name := range []string{"service-account.key", "node-ca.crt", "ca.key"} {
		if err := os.Remove(filepath.Join(dir, "pki", name)); err != nil {
			t.Fatal(err)
		}
		if err := several.CheckKeys(dir); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "members remove a") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "pki")); err != nil {
		t.Fatal(err)
	}
	if err := several.CheckKeys(dir); err == nil {
		t.Error("without any key it starts")
	}
	seen := &File{Name: "a", Known: make([]members.Known, 2)}
	for name, c := range map[string]struct {
		m       *File
		refused bool
	}{
		"alone": {alone, false}, "joining": {&File{Name: "a", AgreedKeys: "hash", Unfinished: true}, false}, "left": {&File{Name: "a", AgreedKeys: "hash", Left: true}, false},
		"first of several, before there are others": {&File{Name: "a"}, false}, "with others that were seen": {seen, true},
	} {
		if err := c.m.CheckKeys(dir); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "pki")); err == nil {
		t.Error("looking makes the folder")
	}
}

// Servers with different prefixes would serve different clusters out of one database.
func TestServersHaveOnePrefix(t *testing.T) {
	m := &File{Name: "a", URL: "https://127.0.0.1:2380"}
	m.Prefix = "/mine"
	o := config.Defaults()
	if err := m.Apply(&o); err != nil || o.API.Etcd.StorageConfig.Prefix != "/mine" {
		t.Errorf("it reads below %q, %v", o.API.Etcd.StorageConfig.Prefix, err)
	}
	o = config.Defaults()
	o.API.Etcd.StorageConfig.Prefix = "/other"
	if err := m.Apply(&o); err == nil || !strings.Contains(err.Error(), "--etcd-prefix /other differs from /mine") {
		t.Errorf("another prefix: %v", err)
	}
}

// A reset that was killed at any point starts no server, loses nothing, and is finished by the next one.
func TestResetThatWasKilled(t *testing.T) {
	for name, interrupt := range map[string]func(database, work string) error{
		"before it began":   func(_, _ string) error { return nil },
		"while it copied":   func(_, work string) error { return os.MkdirAll(filepath.Join(work, "etcd", "member"), 0o700) },
		"while it replaced": func(database, work string) error { return os.Rename(database, filepath.Join(work, "before")) },
		"when it was done":  func(_, work string) error { return os.Mkdir(filepath.Join(work, "before"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			database, work := filepath.Join(dir, "etcd"), filepath.Join(dir, folder.UnfinishedReset)
			s, err := etcd.Start(t.Context(), etcd.Options{Dir: database, NoFsync: true})
			if err != nil {
				t.Fatal(err)
			}
			created, err := s.Stored().Create(t.Context(), "/registry/k", []byte("kept"))
			s.Close()
			if err != nil || !created {
				t.Fatal(created, err)
			}
			m := &File{Name: "a", URL: "https://127.0.0.1:2380", Known: make([]members.Known, 2)}
			err = errors.Join(m.Write(dir), os.Mkdir(work, 0o700), interrupt(database, work))
			if err != nil {
				t.Fatal(err)
			}
			if err := folder.RefuseUnfinished(dir); err == nil || !strings.Contains(err.Error(), "members reset") {
				t.Errorf("a server starts on it: %v", err)
			}
			if err := Reset(t.Context(), dir, time.Now()); err != nil {
				t.Fatal(err)
			}
			if err := folder.RefuseUnfinished(dir); err != nil {
				t.Error(err)
			}
			if s, err = etcd.Start(t.Context(), etcd.Options{Dir: database, NoFsync: true}); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			value, revision, err := s.Stored().Get(t.Context(), "/registry/k")
			if err != nil || string(value) != "kept" || revision < 1_000_000_000 {
				t.Errorf("there is %q of revision %d, %v", value, revision, err)
			}
			if m, err := Read(dir); err != nil || m == nil || len(m.Known) != 0 || m.Name != "a" {
				t.Errorf("the membership is %+v, %v", m, err)
			}
		})
	}
}
