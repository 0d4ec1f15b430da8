package etcd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStartTwiceKeepsData(t *testing.T) {
	dir := t.TempDir()
	for round := range 2 {
		s, err := Start(context.Background(), Options{Dir: dir})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		got, err := s.client.KV.Get(context.Background(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if round == 1 && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v") {
			t.Errorf("after a restart k = %v, want v", got.Kvs)
		}
		if _, err := s.client.KV.Put(context.Background(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		s.Close()
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
