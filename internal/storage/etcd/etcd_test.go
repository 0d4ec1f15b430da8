package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/everynode/everynode/internal/storage/etcd/offline"
)

func TestStartTwiceKeepsData(t *testing.T) {
	dir := t.TempDir()
	for round := range 2 {
		s, err := Start(context.Background(), Options{Dir: dir})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		got, err := s.newClient().KV.Get(context.Background(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if round == 1 && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v") {
			t.Errorf("after a restart k = %v, want v", got.Kvs)
		}
		if _, err := s.newClient().KV.Put(context.Background(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}

// A server may be killed after it has made its log and before it has written to it.
func TestKilledWhileTheDatabaseIsMade(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := wal.Create(zap.NewNop(), filepath.Join(dir, "member", "wal"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Start(context.Background(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.newClient().KV.Put(context.Background(), "k", "v"); err != nil {
		t.Error(err)
	}
}

func TestUnreadableDatabaseIsReportedAndKept(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, []byte(strings.Repeat("not a database ", 9000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(context.Background(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), db) || !strings.Contains(err.Error(), "backup") {
		t.Fatalf("got error %v, want one that names %s and says what to do", err, db)
	}
	if got, err := os.ReadFile(db); err != nil || !strings.HasPrefix(string(got), "not a database") {
		t.Errorf("the file was changed: %.20q, %v", got, err)
	}
}

// Every way in which files get lost or damaged is told before etcd sees it: it
// would crash, or wait for ever.
func TestDamagedDataIsReported(t *testing.T) {
	good := t.TempDir()
	s, err := Start(context.Background(), Options{Dir: good})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := s.newClient().KV.Put(context.Background(), fmt.Sprint(i), strings.Repeat("v", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	noise := bytes.Repeat([]byte{0xa5, 0x17, 0x42}, 3<<12)
	for name, damage := range map[string]func(t *testing.T, db, wal string){
		"database file cut":       func(t *testing.T, db, _ string) { must(t, os.Truncate(db, 5*4096)) },
		"database pages damaged":  func(t *testing.T, db, _ string) { overwrite(t, db, 2*4096, noise) },
		"database head damaged":   func(t *testing.T, db, _ string) { overwrite(t, db, 0, noise) },
		"log lost":                func(t *testing.T, _, wal string) { must(t, os.RemoveAll(filepath.Dir(wal))) },
		"log cut to nothing":      func(t *testing.T, _, wal string) { must(t, os.Truncate(wal, 0)) },
		"log cut":                 func(t *testing.T, _, wal string) { must(t, os.Truncate(wal, 3000)) },
		"log's beginning damaged": func(t *testing.T, _, wal string) { overwrite(t, wal, 0, noise) },
		"log's middle damaged":    func(t *testing.T, _, wal string) { overwrite(t, wal, 5000, noise) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.CopyFS(dir, os.DirFS(good)))
			logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
			if err != nil || len(logs) != 1 {
				t.Fatalf("log files %v, %v, want one", logs, err)
			}
			damage(t, filepath.Join(dir, "member", "snap", "db"), logs[0])
			s, err := Start(context.Background(), Options{Dir: dir})
			if err == nil {
				s.Close()
				t.Fatal("the damage was not noticed")
			}
			if text := err.Error(); !strings.Contains(text, dir) || !strings.HasSuffix(text, offline.BackupHint) ||
				strings.Contains(text, "\n") {
				t.Errorf("got error %q, want one line that names the file and says what to do", text)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, path string, at int64, with []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(with, at)
	must(t, errors.Join(err, f.Close()))
}
