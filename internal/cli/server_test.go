package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/everynode/everynode/internal/server/membership"
)

func TestBeginAnew(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		what    string
		stopped bool
		err     error
		want    error
		again   bool
	}{
		{"it ended", false, nil, nil, false},
		{"it failed", false, broken, broken, false},
		{"it becomes one of several", false, fmt.Errorf("run: %w", membership.ErrBeginAnew), nil, true},
		{"and is told to stop meanwhile", true, membership.ErrBeginAnew, nil, false},
	} {
		ctx, stop := context.WithCancel(t.Context())
		if c.stopped {
			stop()
		}
		again := false
		err := endOr(ctx, c.err, func() error { again = true; return nil })
		if !errors.Is(err, c.want) || again != c.again {
			t.Errorf("%s: %v, again %v; want %v, %v", c.what, err, again, c.want, c.again)
		}
		stop()
	}
}
