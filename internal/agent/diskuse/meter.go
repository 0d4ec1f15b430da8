package diskuse

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrTooDeep means that folders are nested so deep that not all was measured.
var ErrTooDeep = errors.New("folders are nested too deep to be measured")

const (
	// steps is how much of a walk is done between two looks at the clock, in entries.
	steps = 2000
	// forgetAfter is how long a folder is remembered that nobody asks for.
	forgetAfter = 10 * time.Minute
	// restful is how long a walk rests after a whole one, in times that it took: what
	// takes long is done less often.
	restful = 10
)

// Meter measures folders. It is safe for concurrent use.
type Meter struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[string]*folderUse
}

// folderUse is what is known of a folder.
type folderUse struct {
	asked time.Time
	// whole is what the last walk found that came to its end.
	whole Space
	deep  bool
	ended bool
	took  time.Duration
	until time.Time // the next walk begins then

	walk  *walk // under way, nil for none
	spent time.Duration
}

// NewMeter returns a meter that knows nothing yet.
func NewMeter(clk clock.PassiveClock) *Meter {
	return &Meter{clock: clk, known: map[string]*folderUse{}}
}

// Measure says what is below a folder, as far as that is found out within the time: at
// least so much, if a walk of it has not come to its end before. A folder that is not
// there has nothing. With ErrTooDeep, the space is what was counted.
func (m *Meter) Measure(root string, within time.Duration) (Space, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	m.forget(now)
	use := m.known[root]
	if use == nil {
		use = &folderUse{}
		m.known[root] = use
	}
	use.asked = now
	if use.walk == nil && use.ended && now.Before(use.until) {
		return use.answer(root)
	}
	if use.walk == nil {
		use.walk, use.spent = newWalk(root), 0
	}
	// A folder that is open could not be unmounted meanwhile.
	defer func() {
		if use.walk != nil {
			use.walk.close()
		}
	}()
	for {
		done, err := use.walk.steps(steps)
		spent := m.clock.Since(now)
		if err != nil {
			use.walk = nil
			return Space{}, err
		}
		if done {
			use.finish(m.clock.Now(), use.spent+spent)
			return use.answer(root)
		}
		if spent >= within {
			use.spent += spent
			return use.answer(root)
		}
	}
}

func (u *folderUse) finish(now time.Time, took time.Duration) {
	u.whole, u.deep, u.ended, u.took = u.walk.space(), u.walk.deep, true, took
	u.walk = nil
	u.until = now.Add(restful * took)
}

// answer is what is known by now.
func (u *folderUse) answer(root string) (Space, error) {
	out, deep := u.whole, u.deep
	if u.walk != nil {
		found := u.walk.space()
		out = Space{Bytes: max(out.Bytes, found.Bytes), Inodes: max(out.Inodes, found.Inodes)}
		deep = deep || u.walk.deep
	}
	if deep {
		return out, fmt.Errorf("measure %s: %w", root, ErrTooDeep)
	}
	return out, nil
}

func (w *walk) steps(entries int) (done bool, err error) {
	for entries > 0 && !done && err == nil {
		var looked int
		looked, done, err = w.step()
		entries -= max(looked, 1)
	}
	return done, err
}

// forget drops folders that nobody asked for lately.
func (m *Meter) forget(now time.Time) {
	for root, use := range m.known {
		if now.Sub(use.asked) > forgetAfter {
			delete(m.known, root)
		}
	}
}
