// Package eventually waits in tests for what comes about by itself.
package eventually

import (
	"context"
	"testing"
	"time"
)

// Nil waits until check returns nil, and fails the test with its last error if that does
// not happen in time.
func Nil(t testing.TB, patience time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if err = check(ctx); err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("%s: %v", what, err)
}
