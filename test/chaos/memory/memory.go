// Package memory tells what rounds leave in memory, which grows with their number.
package memory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// Keep writes what is in memory, and which goroutines there are, into a folder; without one it does nothing.
// `go tool pprof chaos DIR/heap` reads it.
func Keep(dir string) error {
	if dir == "" {
		return nil
	}
	runtime.GC() // once for what ended, once for what its finalizers let go of
	runtime.GC()
	err := os.MkdirAll(dir, 0o755)
	if err != nil {
		return fmt.Errorf("make the folder for the heap: %w", err)
	}
	for _, what := range []string{"heap", "goroutine"} {
		err = errors.Join(err, keep(filepath.Join(dir, what), what))
	}
	return err
}

func keep(path, what string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep the %s: %w", what, err)
	}
	err = errors.Join(pprof.Lookup(what).WriteTo(f, 0), f.Close())
	if err != nil {
		return fmt.Errorf("keep the %s: %w", what, err)
	}
	return nil
}
