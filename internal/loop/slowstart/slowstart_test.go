package slowstart

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestDo(t *testing.T) {
	for _, c := range []struct{ n, failsFrom, calls int }{{0, 100, 0}, {1, 100, 1}, {10, 100, 10}, {100, 0, 1}, {100, 1, 3}, {100, 3, 7}, {100, 99, 100}} {
		var calls, seen atomic.Int64
		err := Do(c.n, func(i int) error {
			calls.Add(1)
			seen.Add(int64(i))
			if i >= c.failsFrom {
				return errors.New("refused")
			}
			return nil
		})
		if int(calls.Load()) != c.calls || (err != nil) != (c.n > c.failsFrom) {
			t.Errorf("of %d, of which all from %d fail: %d calls and %v, want %d calls", c.n, c.failsFrom, calls.Load(), err, c.calls)
		}
		if n := int64(c.calls); seen.Load() != n*(n-1)/2 {
			t.Errorf("of %d: the numbers are not 0 to %d", c.n, n-1)
		}
	}
}
