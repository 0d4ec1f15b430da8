package etcd

import (
	"errors"
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

// What is asked while the disk becomes full is never answered, and what is asked of a database that works is.
func TestWhoAsksADatabaseThatCannotGoOnIsToldWhy(t *testing.T) {
	s, never, mine := &Server{fatal: newFatal()}, make(chan struct{}), errors.New("my own")
	for _, want := range []error{nil, mine} {
		if err := s.During(func() error { return want }); !errors.Is(err, want) {
			t.Errorf("it returns %v, want %v", err, want)
		}
	}
	told := make(chan error, 1)
	go func() { told <- s.During(func() error { <-never; return nil }) }()
	go s.fatal.OnWrite(&zapcore.CheckedEntry{}, []zapcore.Field{zap.Error(syscall.ENOSPC)})
	select {
	case err := <-told:
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("it returns %v, want why", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for an answer that does not come")
	}
	close(never)
}
