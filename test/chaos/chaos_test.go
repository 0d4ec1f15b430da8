package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// TestShortSeries plays a few rounds, one of them on the real program.
func TestShortSeries(t *testing.T) {
	binary := needs.Everynode(t, "../..")
	quiet()
	var out bytes.Buffer
	o := options{binary: binary, length: 1500 * time.Millisecond, keep: t.TempDir()}
	const first, rounds = 1, 6
	if bad := series(t.Context(), &out, first, rounds, 2, o); bad > 0 {
		t.Errorf("%d rounds broke a promise:\n%s", bad, &out)
	}
}
