package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// piece is for how long one file of a CPU profile is.
const piece = 2 * time.Second

// profiled runs a phase, and keeps profiles of the server's processor time in it, in files of a few seconds each, and
// its heap after it. `go tool pprof bin/everynode DIR/update-*.cpu` reads those of a phase as one.
func (b *bench) profiled(ctx context.Context, phase string, run func(context.Context) error) error {
	if b.profiles == "" {
		return run(ctx)
	}
	within, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		for i := 0; within.Err() == nil; i++ {
			if err := b.profile(
				ctx, fmt.Sprintf("%s-%03d.cpu", phase, i), "profile", "seconds", strconv.Itoa(int(piece.Seconds())),
			); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	if err := run(ctx); err != nil {
		return err
	}
	stop()
	if err := <-done; err != nil {
		return err
	}
	return b.profile(ctx, phase+".heap", "heap", "gc", "1")
}

// profile keeps one profile of the server.
func (b *bench) profile(ctx context.Context, file, kind, parameter, value string) error {
	data, err := b.client.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/"+kind).Param(parameter, value).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read the server's profile %s: %w", kind, err)
	}
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return fmt.Errorf("keep profiles: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.profiles, fmt.Sprintf("%d-%s", b.nodes, file)), data, 0o644); err != nil {
		return fmt.Errorf("keep profiles: %w", err)
	}
	return nil
}
