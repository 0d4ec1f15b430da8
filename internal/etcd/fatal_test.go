package etcd

import (
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// TestItFailsWhileItIsClosed: what ends the database waits for a goroutine that is held because the disk is full.
func TestItFailsWhileItIsClosed(t *testing.T) {
	ended := func(f *fatal, end func()) {
		t.Helper()
		done := make(chan struct{})
		go func() { defer close(done); f.end(end) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("the end of a database that cannot go on is waited for")
		}
	}
	calls, f := 0, newFatal()
	ended(f, func() { calls++ })
	if calls != 1 {
		t.Fatalf("a database without a fault was closed %d times", calls)
	}
	full := []zapcore.Field{zap.Error(syscall.ENOSPC)}
	ended(f, func() {
		held := make(chan struct{})
		go func() { defer close(held); f.OnWrite(&zapcore.CheckedEntry{}, full) }()
		<-held
	})
	go f.OnWrite(&zapcore.CheckedEntry{}, full) // A second one stops nothing.
	ended(f, func() { t.Error("a database that holds its own locks is closed") })
	if err := <-f.failed; err == nil {
		t.Error("no reason")
	}
}
