package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/files/wholefile"
)

func TestRemoveDataLeavesWhatIsNotTheClusters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, name := range []string{"etcd/db", "version.json", ".backup-12345/etcd/db", "restore-unfinished/x",
		"encryption.yaml", wholefile.Unfinished("encryption.yaml") + "12345", "nodes/node-1/log/x", "local.json", "kubeconfig", ".kubeconfig.12345", wholefile.Unfinished("local.json") + "12345", "precious"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeData(dir); err == nil || !strings.Contains(err.Error(), "not of the cluster") {
		t.Errorf("a folder with more than the cluster: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "precious" {
		t.Errorf("left are %v (%v)", entries, err)
	}
	if err := os.Remove(filepath.Join(dir, "precious")); err != nil {
		t.Fatal(err)
	}
	if err := removeData(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}
