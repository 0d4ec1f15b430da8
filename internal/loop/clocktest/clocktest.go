// Package clocktest makes times of a process whose clock on the wall somebody sets. A time has two readings, and what a
// test adds to one moves both.
package clocktest

import (
	"time"
	"unsafe"
)

var start = time.Now()

// At is what time.Now returns in a process that has run for so long, while its clock on the wall shows that.
func At(wall time.Time, ran time.Duration) time.Time {
	t := start
	t = t.Add(wall.Sub(t.Round(0)))
	// A time.Time is its reading of the wall, that of how long the process has run, and the place.
	is := (*struct {
		wall uint64
		ran  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	is.ran, is.loc = int64(ran)+1, wall.Location()
	if !t.Round(0).Equal(wall) || ran != 0 && At(wall, 0).Add(ran).Sub(t) != 0 {
		panic("time.Time is made otherwise than is known here")
	}
	return t
}
