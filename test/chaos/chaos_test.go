package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestShortSeries plays a few rounds, one of them on the real program.
func TestShortSeries(t *testing.T) {
	binary := os.Getenv("EVERYNODE_BINARY")
	if binary == "" {
		binary = filepath.Join("..", "..", "bin", "everynode")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("the program under test is missing: %v; run make build, or set EVERYNODE_BINARY", err)
	}
	quiet()
	var out bytes.Buffer
	o := options{binary: binary, length: 1500 * time.Millisecond, keep: t.TempDir()}
	const first, rounds = 1, 6
	if bad := series(t.Context(), &out, first, rounds, 2, o); bad > 0 {
		t.Errorf("%d rounds broke a promise:\n%s", bad, &out)
	}
}
