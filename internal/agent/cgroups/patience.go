package cgroups

import (
	"fmt"
	"sync"
	"time"
)

const (
	// patience is how long systemd may take for a cgroup. What it began it may take 30 s for, which the library sees to.
	patience = 45 * time.Second
	// unanswered is how many questions may wait for systemd at once.
	unanswered = 16
)

// asking bounds how long systemd is waited for: the library waits without an end for an answer on the bus. What was
// given up is still under way, and may be done late; until then nothing else is asked about that cgroup, and what is
// asked at once is bounded.
type asking struct {
	patience time.Duration

	mu sync.Mutex // guards what is below
	// open are the cgroups about which systemd was asked, each with what was, and its end.
	open map[string]question
}

type question struct {
	what string
	done chan struct{}
}

// ask does call, which asks systemd about a cgroup, and returns its error, or that systemd did not answer in time.
func (a *asking) ask(what, cgroup string, call func() error) error {
	timer := time.NewTimer(a.patience)
	defer timer.Stop()
	for {
		before, free := a.begin(what, cgroup)
		if free {
			break
		}
		select {
		case <-before.done:
		case <-timer.C:
			return fmt.Errorf("%s %s: systemd has not yet answered to: %s", what, cgroup, before.what)
		}
	}
	answer := make(chan error, 1)
	go func() {
		defer a.end(cgroup)
		answer <- call()
	}()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		return fmt.Errorf("%s %s: systemd did not answer within %v", what, cgroup, a.patience)
	}
}

// begin notes a question; if that cannot be asked yet it returns one whose end is to be waited for.
func (a *asking) begin(what, cgroup string) (question, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, ok := a.open[cgroup]; ok {
		return before, false
	}
	if len(a.open) >= unanswered {
		for _, before := range a.open {
			return before, false
		}
	}
	if a.open == nil {
		a.open = map[string]question{}
	}
	a.open[cgroup] = question{what + " " + cgroup, make(chan struct{})}
	return question{}, true
}

func (a *asking) end(cgroup string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.open[cgroup].done)
	delete(a.open, cgroup)
}
