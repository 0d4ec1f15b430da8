package plugins

import (
	"maps"
	"slices"
	"time"
)

// Waits between tries of a plugin that cannot be taken.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

// socket tells one socket from another that was made at the same path later.
type socket struct {
	inode uint64
	made  int64
}

// known is what is known of a socket.
type known struct {
	socket socket
	// taken is the plugin behind it, nil while it could not be taken.
	taken *plugin
	// untold says that the plugin was taken and does not know it yet.
	untold bool
	// tries is how often it could not be, next when to try again.
	tries int
	next  time.Time
}

// plan says which of the sockets are to be forgotten and which to be tried now, and how long to wait at most for the
// next look; negative for as long as nothing changes.
func plan(have map[string]*known, seen map[string]socket, now time.Time) (forget, try []string, wait time.Duration) {
	wait = -1
	for _, path := range slices.Sorted(maps.Keys(have)) {
		if s, ok := seen[path]; !ok || s != have[path].socket {
			forget = append(forget, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(seen)) {
		k := have[path]
		switch {
		case k == nil || k.socket != seen[path]:
			try = append(try, path)
		case k.taken != nil && !k.untold:
		case !now.Before(k.next):
			try = append(try, path)
		case wait < 0 || k.next.Sub(now) < wait:
			wait = k.next.Sub(now)
		}
	}
	return forget, try, wait
}

// failed notes that the plugin could not be taken.
func (k *known) failed(now time.Time) {
	k.next = now.Add(min(firstRetry<<min(k.tries, 20), lastRetry))
	k.tries++
}
