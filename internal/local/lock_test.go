package local

import (
	"errors"
	"testing"
)

func TestLockIsExclusive(t *testing.T) {
	dir := t.TempDir()
	first, err := acquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := acquireLock(dir); !errors.Is(err, errLocked) {
		t.Errorf("a second one gets %v", err)
	}
	first.release()
	again, err := acquireLock(dir)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again.release()
}
