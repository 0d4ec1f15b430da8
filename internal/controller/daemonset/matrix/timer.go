package matrix

import (
	"time"

	"github.com/everynode/everynode/internal/deadline"
)

// timed has the one timer of a cell or of a row.
type timed struct {
	cell *cell
	row  *row // set for a row's timer, nil for a cell's
}

type timer = deadline.Timer[timed]

// sooner returns the earlier of two times; the zero time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
