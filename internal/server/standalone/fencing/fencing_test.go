package fencing

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// lock is one that is written by nobody else. What happens while it is written is during.
type lock struct {
	holder string
	err    error
	during func()
}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, l.err
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *lock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	if l.during != nil {
		l.during()
	}
	return l.err
}

func (*lock) RecordEvent(string) {}
func (*lock) Identity() string   { return "me" }
func (*lock) Describe() string   { return "kube-system/controller" }

// A process writes while its lock has surely not run out, whatever became of the answer to a renewal, and not
// after it has begun to give the lock up.
func TestHolds(t *testing.T) {
	me, nobody := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	const lasts = 15 * time.Second
	now := clocktesting.NewFakeClock(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC))
	inner := &lock{}
	f := New(inner, lasts, now)
	expect := func(want bool, when string) {
		t.Helper()
		if f.Holds() != want {
			t.Errorf("%s: holds %v, want %v", when, !want, want)
		}
	}
	expect(false, "before it was had")
	inner.err = errors.New("another has it")
	_ = f.Create(t.Context(), me)
	expect(false, "after another got it")
	inner.err, inner.during = nil, func() { now.Step(10 * time.Second) }
	_ = f.Create(t.Context(), me)
	inner.during = nil
	now.Step(5*time.Second - 1)
	expect(true, "just before it runs out")
	now.Step(1)
	expect(false, "when it runs out, counted from when it was asked for")
	_ = f.Update(t.Context(), me)
	expect(true, "when it was renewed")
	inner.err = errors.New("no answer")
	now.Step(lasts - 1)
	_ = f.Update(t.Context(), me)
	expect(true, "as long as it was had, without an answer since")
	now.Step(1)
	expect(false, "after a renewal without an answer")
	inner.err = nil
	_ = f.Update(t.Context(), me)
	inner.during = func() { expect(false, "while it is given up") }
	_ = f.Update(t.Context(), nobody)
	expect(false, "after it was given up")
	inner.during = nil
	_ = f.Update(t.Context(), me)
	inner.holder = "me"
	_, _, _ = f.Get(t.Context())
	expect(true, "when it sees that it has the lock")
	inner.holder, inner.err = "another", errors.New("no answer")
	_, _, _ = f.Get(t.Context())
	expect(true, "when it does not see who has the lock")
	inner.err = nil
	_, _, _ = f.Get(t.Context())
	expect(false, "when it sees that another has the lock")
}

// set is a clock that somebody sets.
type set struct {
	clock.PassiveClock
	now time.Time
}

func (s *set) Now() time.Time { return s.now }

// A lock runs out by the monotonic clock, and by the wall clock where that is all there is.
func TestHoldsByBothClocks(t *testing.T) {
	start := time.Now()
	c := &set{now: start}
	f := New(&lock{}, 15*time.Second, c)
	_ = f.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})
	if c.now = start.Add(14 * time.Second); !f.Holds() {
		t.Error("lost before it ran out")
	}
	if c.now = start.Add(16 * time.Second); f.Holds() {
		t.Error("held after it ran out")
	}
	if c.now = start.Round(0).Add(16 * time.Second); f.Holds() { // without a monotonic part only the wall clock counts
		t.Error("held after it ran out by the wall clock")
	}
}

// Writes of who does not surely hold the lock are not sent, and the error says why; reads are.
func TestOnlyTheLeaderWrites(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+string(body))
	}))
	defer server.Close()
	now := clocktesting.NewFakeClock(time.Now())
	f := New(&lock{}, 15*time.Second, now)
	plain := &restclient.Config{Host: server.URL}
	client, err := restclient.HTTPClientFor(f.Around(plain))
	if err != nil {
		t.Fatal(err)
	}
	if plain.WrapTransport != nil {
		t.Error("the configuration of the election itself is behind the fence")
	}
	send := func(method, body string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	_ = f.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})
	if err := send(http.MethodPost, "first"); err != nil {
		t.Error("the leader cannot write:", err)
	}
	now.Step(time.Minute)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		err := send(method, "late")
		const why = "another instance may lead: the lease kube-system/controller was not renewed for 15s"
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s of who slept: %v, want %q", method, err, why)
		}
	}
	if err := send(http.MethodGet, ""); err != nil {
		t.Error("who slept cannot read:", err)
	}
	if want := []string{"POST first", "GET "}; strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("sent: %q, want %q", got, want)
	}
}
