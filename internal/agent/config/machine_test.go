package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHasAppArmor(t *testing.T) {
	root := t.TempDir()
	if HasAppArmor(root) {
		t.Error("a kernel without AppArmor has it")
	}
	dir := filepath.Join(root, "sys/module/apparmor/parameters")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"Y\n": true, "N\n": false} {
		if err := os.WriteFile(filepath.Join(dir, "enabled"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := HasAppArmor(root); got != want {
			t.Errorf("with %q it is there: %t, want %t", text, got, want)
		}
	}
}
