// Package turns decides which of several servers a node uses, and which it tries next.
package turns

import (
	"hash/fnv"
	"slices"
	"time"
)

const (
	// firstPause is how long a server is passed over that has failed once; it doubles
	// with each failure, up to longestPause.
	firstPause, longestPause = time.Second, 30 * time.Second
	// Patience is how long a server may answer nothing but errors, enough of them, before
	// the node turns to another.
	Patience, enough = 8 * time.Second, 3
	// remembered is how long a server is known after it was last told of, and most how
	// many are.
	remembered, most = 7 * 24 * time.Hour, 16
)

// Servers is what a node knows of the servers. The zero value knows none.
type Servers struct {
	// Seen says when each server, an IP:PORT, was last told of.
	Seen map[string]time.Time `json:"seen"`

	start   uint32
	current string
	trouble map[string]trouble
	// since is when the first of errors came from the current server that no success has
	// followed.
	since  time.Time
	errors int
}

type trouble struct {
	failures int
	until    time.Time
}

// SpreadBy has nodes of different names begin with different servers.
func (s *Servers) SpreadBy(name string) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // it never fails
	s.start = h.Sum32()
}

// Learn takes in which servers live now, and reports whether that is worth keeping: that
// a server is new, or forgotten, or was last told of long ago.
func (s *Servers) Learn(now time.Time, living []string) (changed bool) {
	if s.Seen == nil {
		s.Seen = map[string]time.Time{}
	}
	for _, server := range living {
		last, known := s.Seen[server]
		if !known || now.Sub(last) > remembered/14 {
			s.Seen[server], changed = now, true
		}
	}
	for server, last := range s.Seen {
		if now.Sub(last) > remembered && !slices.Contains(living, server) {
			delete(s.Seen, server)
			changed = true
		}
	}
	for len(s.Seen) > most {
		oldest := ""
		for server, last := range s.Seen {
			if oldest == "" || last.Before(s.Seen[oldest]) || last.Equal(s.Seen[oldest]) && server < oldest {
				oldest = server
			}
		}
		delete(s.Seen, oldest)
		changed = true
	}
	return changed
}

// Order lists the servers in the order in which they are to be tried. The configured
// one is among them: the last of several, since it may be a name for all of them, but
// before the only other one.
func (s *Servers) Order(now time.Time, configured string) []string {
	var all []string
	for server := range s.Seen {
		if server != configured {
			all = append(all, server)
		}
	}
	slices.Sort(all)
	if n := len(all); n > 1 {
		at := int(s.start % uint32(n)) //nolint:gosec // A handful.
		all = slices.Concat(all[at:], all[:at], []string{configured})
		if _, known := s.Seen[configured]; known {
			// It is one of them: its turn is where its address puts it.
			all = all[:n]
			all = append(all, configured)
			slices.Sort(all)
			at = int(s.start % uint32(n+1)) //nolint:gosec // As above.
			all = slices.Concat(all[at:], all[:at])
		}
	} else {
		all = append([]string{configured}, all...)
	}
	rank := func(server string) time.Time {
		if until := s.trouble[server].until; until.After(now) {
			return until
		}
		return time.Time{}
	}
	slices.SortStableFunc(all, func(a, b string) int {
		if c := rank(a).Compare(rank(b)); c != 0 {
			return c
		}
		switch s.current {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	return all
}

// Failed says that a server could not be reached, or answers errors only.
func (s *Servers) Failed(now time.Time, server string) {
	if s.trouble == nil {
		s.trouble = map[string]trouble{}
	}
	t := s.trouble[server]
	pause := longestPause
	if t.failures < 5 {
		pause = firstPause << t.failures
	}
	s.trouble[server] = trouble{t.failures + 1, now.Add(pause)}
	if server == s.current {
		s.current = ""
	}
}

// Connected says that the node uses a server from now on.
func (s *Servers) Connected(server string) {
	s.current, s.errors = server, 0
}

// Answered says that a request was answered by the server in use, and well if ok. It
// reports whether the node should turn to another.
func (s *Servers) Answered(now time.Time, ok bool) (turn bool) {
	switch {
	case ok:
		s.errors = 0
		delete(s.trouble, s.current)
		return false
	case s.errors == 0:
		s.since = now
	}
	s.errors++
	if s.errors < enough || now.Sub(s.since) < Patience || s.current == "" {
		return false
	}
	s.Failed(now, s.current)
	s.errors = 0
	return true
}
