package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
				ctx, fmt.Sprintf("%s-%03d.cpu", phase, i), "/debug/pprof/profile", "seconds", strconv.Itoa(int(piece.Seconds())),
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
	err := b.profile(ctx, phase+".heap", "/debug/pprof/heap", "gc", "1")
	if err != nil {
		return err
	}
	return b.profile(ctx, phase+".metrics", "/metrics", "", "")
}

// profile keeps what the server says of itself.
func (b *bench) profile(ctx context.Context, file, path, parameter, value string) error {
	data, err := b.client.CoreV1().RESTClient().Get().AbsPath(path).Param(parameter, value).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read the server's %s: %w", path, err)
	}
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return fmt.Errorf("keep profiles: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.profiles, fmt.Sprintf("%d-%s", b.nodes, file)), data, 0o644); err != nil {
		return fmt.Errorf("keep profiles: %w", err)
	}
	return nil
}

// heap is what the first server's runtime counts since its start.
type heap struct{ allocated, collections int64 }

// String implements fmt.Stringer.
func (h heap) String() string { return fmt.Sprintf("%d MB / %d", h.allocated>>20, h.collections) }

// heap reads what the first server has allocated. Unlike its CPU time that is the same on a machine that does other
// things too.
func (b *bench) heap(ctx context.Context) (h heap, err error) {
	data, err := b.client.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("debug", "1").DoRaw(ctx)
	if err != nil {
		return h, fmt.Errorf("read what the server has allocated: %w", err)
	}
	for name, field := range map[string]*int64{"TotalAlloc": &h.allocated, "NumGC": &h.collections} {
		_, rest, found := strings.Cut(string(data), "\n# "+name+" = ")
		if !found {
			return h, fmt.Errorf("the server's profile of the heap has no %s", name)
		}
		number, _, _ := strings.Cut(rest, "\n")
		*field, err = strconv.ParseInt(number, 10, 64)
		if err != nil {
			return h, fmt.Errorf("read %s of the server's profile of the heap: %w", name, err)
		}
	}
	return h, nil
}
