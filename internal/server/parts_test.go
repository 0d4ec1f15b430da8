package server

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A part may wait for a database that will never answer.
func TestPartThatHangsWithTheDatabaseIsLeft(t *testing.T) {
	full := errors.New("no space left on device")
	lost, never := make(chan struct{}), make(chan struct{})
	p := newParts(t.Context())
	p.run("reader", func(context.Context) error { <-never; return nil })
	p.run("database", func(context.Context) error { close(lost); return full })
	if err := p.wait(lost, time.Millisecond); !errors.Is(err, full) {
		t.Errorf("it ends with %v, want why the database failed", err)
	}

	ctx, stop := context.WithCancel(t.Context())
	p, lost = newParts(ctx), make(chan struct{})
	p.run("reader", func(context.Context) error { <-never; return nil })
	p.run("database", func(ctx context.Context) error { <-ctx.Done(); close(lost); return full })
	stop()
	if err := p.wait(lost, time.Millisecond); err != nil {
		t.Errorf("told to end it says %v", err)
	}
	close(never)
}

// As long as the database works, every part is waited for.
func TestPartsAreWaitedFor(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	p, done := newParts(ctx), false
	p.run("slow", func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(50 * time.Millisecond)
		done = true
		return nil
	})
	stop()
	if err := p.wait(nil, time.Millisecond); err != nil || !done {
		t.Errorf("ended %v, %v", done, err)
	}
}
