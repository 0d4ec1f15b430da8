package matrix

import "time"

// pace limits how fast changes begin, over all DaemonSets of a policy. Its zero value has no
// limit; see set.
type pace struct {
	perMinute int
	spent     int // in all
	saved     float64
	at        time.Time
}

// paceSaved is how much of a pace may be saved up: a pause does not end in a rush.
const paceSaved = 10 * time.Second

// set changes how many nodes may begin in a minute; 0 means no limit. A new pace has
// saved up one node, so that a restart does not hurry.
func (p *pace) set(perMinute int, now time.Time) {
	if p.perMinute != perMinute || p.at.IsZero() {
		*p = pace{perMinute: perMinute, spent: p.spent, saved: 1, at: now}
	}
}

// limited reports whether there is a limit.
func (p *pace) limited() bool { return p.perMinute > 0 }

// allows says how many may begin now.
func (p *pace) allows(now time.Time) int {
	if p.perMinute == 0 {
		return 1 << 30
	}
	if passed := now.Sub(p.at); passed > 0 {
		most := max(float64(p.perMinute)*paceSaved.Minutes(), 1)
		p.saved = min(p.saved+float64(p.perMinute)*passed.Minutes(), most)
		p.at = now
	}
	return int(p.saved)
}

// spend tells that so many have begun. It returns how many have in all.
func (p *pace) spend(n int) int {
	if p.perMinute > 0 {
		p.saved -= float64(n)
	}
	p.spent += n
	return p.spent
}

// next is when another one may begin, if none may now.
func (p *pace) next() time.Time {
	if p.perMinute == 0 || p.saved >= 1 {
		return p.at
	}
	missing := (1 - p.saved) / float64(p.perMinute) * float64(time.Minute)
	return p.at.Add(time.Duration(missing) + time.Millisecond)
}
