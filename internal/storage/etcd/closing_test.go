package etcd

import (
	"testing"
)

// A kind that is added and removed again and again costs nothing in the end.
func TestAClosedStorageGivesItsClientBack(t *testing.T) {
	s := startAt(t, t.TempDir())
	clients := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.clients)
	}
	before := clients()
	opened, kept := openPods(t, s, "pods"), openPods(t, s, "others")
	if got := clients(); got != before+2 {
		t.Fatalf("%d clients, %d before two storages were opened", got, before)
	}
	for range 2 {
		opened.(interface{ Close() }).Close()
	}
	if got := clients(); got != before+1 {
		t.Errorf("%d clients, want %d: one storage was closed", got, before+1)
	}
	create(t, kept, "/others/a")
}
