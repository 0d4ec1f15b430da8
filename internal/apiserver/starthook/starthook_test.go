package starthook

import (
	"context"
	"errors"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// TestHooksAndTheEnd: the library ends the process when a hook fails.
func TestHooksAndTheEnd(t *testing.T) {
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(t.Context())
	hook := UnlessStopped(func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return broken
	})
	if err := hook(genericapiserver.PostStartHookContext{Context: ctx}); !errors.Is(err, broken) {
		t.Errorf("a hook that fails returns %v", err)
	}
	cancel()
	if err := hook(genericapiserver.PostStartHookContext{Context: ctx}); err != nil {
		t.Errorf("a hook that fails since the server is stopped returns %v", err)
	}
}

func TestInsist(t *testing.T) {
	tries := 0
	run := Insist(func(context.Context) error {
		tries++
		if tries < 3 {
			return errors.New("a bad moment")
		}
		return nil
	})
	if err := run(t.Context()); err != nil || tries != 3 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	run = Insist(func(context.Context) error {
		cancel()
		return errors.New("cut off")
	})
	if err := run(ctx); err == nil {
		t.Error("what never succeeded is taken for done")
	}
}
