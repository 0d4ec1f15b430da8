// Package progress tells how far a cluster is, through a pipe and on a screen.
package progress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind says what an Event tells.
type Kind string

const (
	// Note is a sentence for the user.
	Note Kind = "note"
	// Begin says that a step begins; several may go on at once.
	Begin Kind = "begin"
	// Done says that a step is done.
	Done Kind = "done"
	// Failed says that a step failed.
	Failed Kind = "failed"
	// Dropped says that a step was given up because something else failed,
	// or because the user stopped it.
	Dropped Kind = "dropped"
	// Ready says that the cluster can be used; Text says how.
	Ready Kind = "ready"
	// Error ends the stream of a cluster that did not start.
	Error Kind = "error"
)

// Event is one piece of progress.
type Event struct {
	Kind Kind          `json:"kind"`
	Step string        `json:"step,omitempty"`
	Text string        `json:"text,omitempty"`
	Took time.Duration `json:"took,omitempty"`
}

// Report takes progress; it may be called by several goroutines at once.
type Report func(Event)

// Step reports a step around what does it; that returns what to say about it.
func (r Report) Step(name string, do func() (string, error)) error {
	begin := time.Now()
	r(Event{Kind: Begin, Step: name})
	text, err := do()
	if errors.Is(err, context.Canceled) {
		r(Event{Kind: Dropped, Step: name, Took: time.Since(begin)})
		return err
	}
	if err != nil {
		r(Event{Kind: Failed, Step: name, Took: time.Since(begin)})
		return err
	}
	r(Event{Kind: Done, Step: name, Text: text, Took: time.Since(begin)})
	return nil
}

// ReportTo writes events to a pipe, one line of JSON each. A reader that has
// gone away is fine: progress is for whoever wants to see it.
func ReportTo(w io.Writer) Report {
	var mu sync.Mutex
	encoder := json.NewEncoder(w)
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(e)
	}
}

// Read passes on what ReportTo writes, until the pipe is closed or to
// returns an error, which it returns then.
func Read(r io.Reader, to func(Event) error) error {
	for decoder := json.NewDecoder(r); ; {
		var e Event
		if err := decoder.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read progress: %w", err)
		}
		if err := to(e); err != nil {
			return err
		}
	}
}

// Screen shows progress: a line per finished step, and on a terminal one more
// line, always the last, with what goes on.
type Screen struct {
	out      io.Writer
	terminal bool
	mu       sync.Mutex
	active   []string
	since    time.Time
	stop     chan struct{}
}

// NewScreen shows progress on out until Close.
func NewScreen(out io.Writer, terminal bool) *Screen {
	s := &Screen{out: out, terminal: terminal, since: time.Now(), stop: make(chan struct{})}
	if terminal {
		go s.tick()
	}
	return s
}

// tick redraws the last line so that its seconds go on.
func (s *Screen) tick() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			s.mu.Lock()
			s.erase()
			s.draw()
			s.mu.Unlock()
		}
	}
}

// Close takes the last line away.
func (s *Screen) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.stop)
	s.erase()
	s.active = nil
}

// Report shows one event.
func (s *Screen) Report(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	if e.Kind == Begin {
		if len(s.active) == 0 {
			s.since = time.Now()
		}
		s.active = append(s.active, e.Step)
	} else if i := slices.Index(s.active, e.Step); i >= 0 {
		s.active = slices.Delete(s.active, i, i+1)
	}
	if line := renderEvent(e); line != "" {
		fmt.Fprintln(s.out, line)
	}
	s.draw()
}

func (s *Screen) erase() {
	if s.terminal && len(s.active) > 0 {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}

func (s *Screen) draw() {
	if s.terminal && len(s.active) > 0 {
		fmt.Fprintf(s.out, "  … %s (%.0fs)", strings.Join(s.active, ", "), time.Since(s.since).Seconds())
	}
}

// renderEvent is the line for an event, empty for none.
func renderEvent(e Event) string {
	switch e.Kind {
	case Done:
		return fmt.Sprintf("  ✓ %-14s %-58s %5.1fs", e.Step, e.Text, e.Took.Seconds())
	case Failed:
		return fmt.Sprintf("  ✗ %-14s %-58s %5.1fs", e.Step, "failed", e.Took.Seconds())
	case Note, Ready:
		return e.Text
	default:
		return ""
	}
}
