package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/everynode/everynode/internal/server/loops"
)

// A loop that does not stop when the election is lost ends the server: those of
// another are at work by then.
func TestLoopThatDoesNotStopEndsTheServer(t *testing.T) {
	term, lose := context.WithCancel(t.Context())
	lose()
	err := fmt.Errorf("%w: it hangs", loops.ErrStillAtWork)
	if !errors.Is(afterTerm(t.Context(), term, err), loops.ErrStillAtWork) {
		t.Errorf("a loop that does not stop: %v", err)
	}
	if err := afterTerm(t.Context(), term, nil); err != nil {
		t.Errorf("an election that was lost: %v", err)
	}
	if err := afterTerm(t.Context(), term, errors.New("cut off")); err != nil {
		t.Errorf("an election that was lost while the loops began: %v", err)
	}
	broken := errors.New("broken")
	if err := afterTerm(t.Context(), t.Context(), broken); !errors.Is(err, broken) {
		t.Errorf("a loop that cannot work: %v", err)
	}
}

// heldLock is a lock that cannot be renewed while it is broken, but given up: as with a database that answers again
// in that very moment.
type heldLock struct {
	mu     sync.Mutex // guards all below
	record resourcelock.LeaderElectionRecord
	broken bool
}

func (l *heldLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record := l.record
	raw, err := json.Marshal(record)
	return &record, raw, err
}

func (l *heldLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *heldLock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken && r.HolderIdentity != "" {
		return errors.New("no majority")
	}
	l.record = r
	return nil
}

func (l *heldLock) RecordEvent(string) {}
func (l *heldLock) Identity() string   { return "self" }
func (l *heldLock) Describe() string   { return "held" }

func (l *heldLock) breaks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
}

func (l *heldLock) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.HolderIdentity
}

// The election is not given up while loops are still stopping: another server's would work beside them.
func TestElectionIsGivenUpAfterTheLoopsHaveStopped(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		left string
	}{
		"all have stopped": {nil, ""},
		"some have not":    {loops.ErrStillAtWork, "self"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lock := &heldLock{}
				err := contend(t.Context(), lock, func(term context.Context, _ func()) error {
					lock.breaks()
					<-term.Done()
					time.Sleep(time.Minute)
					if got := lock.holder(); got != "self" {
						t.Errorf("while the loops stop the lock is held by %q", got)
					}
					return c.err
				})
				if !errors.Is(err, c.err) {
					t.Errorf("contend: %v, want %v", err, c.err)
				}
				if got := lock.holder(); got != c.left {
					t.Errorf("at the end the lock is held by %q, want %q", got, c.left)
				}
			})
		})
	}
}

// A server does not stand while it is to give way, and ends its term when it is to from then on.
func TestACandidateThatGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why atomic.Value
		why.Store("another knows more")
		c := &Candidate{GivesWay: func(context.Context) string { return why.Load().(string) }}
		stands := make(chan bool)
		go func() { stands <- c.mayStand(t.Context()) }()
		synctest.Wait()
		select {
		case <-stands:
			t.Error("it stands, and is to give way")
		case <-time.After(time.Hour):
		}
		why.Store("")
		if !<-stands {
			t.Error("it does not stand, and may")
		}
		term, stop := context.WithCancel(t.Context())
		go c.giveWay(term, stop)
		time.Sleep(time.Hour)
		if term.Err() != nil {
			t.Error("its term ends, and it need not give way")
		}
		why.Store("another knows more")
		<-term.Done()

		why.Store("for ever")
		leaving, leave := context.WithCancel(t.Context())
		go func() { stands <- c.mayStand(leaving) }()
		leave()
		if <-stands {
			t.Error("it stands, and ends")
		}
	})
}
