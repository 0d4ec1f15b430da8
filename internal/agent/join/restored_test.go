package join

import (
	"errors"
	"os"
	"testing"
)

// What counts is the restore with which the node was settled, also after the agent was killed at any moment.
func TestRestores(t *testing.T) {
	dir := t.TempDir()
	open := func() *Identity {
		t.Helper()
		id := &Identity{store: store{dir, newContents()}, wakeClient: make(chan struct{}, 1)}
		if err := id.readRestored(); err != nil {
			t.Fatal(err)
		}
		return id
	}
	hear := func(id *Identity, told string, want bool) {
		t.Helper()
		if err := id.hearRestored(told); err != nil {
			t.Fatal(err)
		}
		if got := id.restores.other(); got != want {
			t.Errorf("told of %q: %v, want %v", told, got, want)
		}
	}
	id := open()
	if id.restores.other() {
		t.Error("nobody has said anything")
	}
	hear(id, "", false)     // it joined a cluster that was never restored
	hear(id, "first", true) // the backup may be older than the node
	hear(open(), "first", true)
	id.Settle(t.Context(), true) // the Node was made again: its key has to be shown
	select {
	case <-id.wakeClient:
	default:
		t.Error("no client certificate is asked for")
	}
	id.Settle(t.Context(), false) // the Node is there, and the key was not shown yet
	hear(open(), "first", true)
	id.unbound.Store(false) // with the new certificate
	id.Settle(t.Context(), false)
	hear(open(), "first", false)
	hear(id, "first", false)
	hear(id, "", false) // of a server of before
	hear(id, "second", true)
	id.Settle(t.Context(), false) // the backup knew it
	hear(open(), "second", false)
	if id.unbound.Load() {
		t.Error("a node that the backup knew shows its key")
	}
	// Whoever joins a cluster that was restored before is of that restore.
	if err := os.Remove(id.store.path(restoredFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	hear(open(), "second", false)
	hear(open(), "second", false)
}

// Who is killed between making its Node again and showing its key shows it after the next start.
func TestKeyIsShownAfterAKill(t *testing.T) {
	dir := t.TempDir()
	open := func() *Identity {
		t.Helper()
		id := &Identity{store: store{dir, newContents()}, wakeClient: make(chan struct{}, 1)}
		if err := id.readRestored(); err != nil {
			t.Fatal(err)
		}
		return id
	}
	hear := func(id *Identity, told string) {
		t.Helper()
		if err := id.hearRestored(told); err != nil {
			t.Fatal(err)
		}
	}
	id := open()
	hear(id, "")
	if err := id.making(id.restores.other(), nil); err != nil {
		t.Fatal(err)
	}
	if id = open(); id.unbound.Load() {
		t.Error("a node that was never restored shows its key again")
	}
	hear(id, "first")
	if err := id.making(id.restores.other(), nil); err != nil {
		t.Fatal(err)
	}
	// Killed when the Node was made. After the start it is there, so it is not made again.
	id = open()
	hear(id, "first")
	id.Settle(t.Context(), false)
	if !id.unbound.Load() || !id.restores.other() {
		t.Error("the key is not shown, and the restore is forgotten")
	}
	// Killed once more, before there is a new certificate.
	if id = open(); !id.unbound.Load() {
		t.Error("the key is not shown after another kill")
	}
	id.shown(t.Context())
	hear(id, "first")
	id.Settle(t.Context(), false)
	if id = open(); id.unbound.Load() || *id.restores.noted != "first" {
		t.Errorf("the key was shown, and is to be shown again: %v; noted %q", id.unbound.Load(), *id.restores.noted)
	}
	if err := id.making(false, errors.New("the server is away")); err != nil {
		t.Fatal(err)
	}
	if id = open(); !id.unbound.Load() {
		t.Error("when nobody can be asked the key is not shown")
	}
}
