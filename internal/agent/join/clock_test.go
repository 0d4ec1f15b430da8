package join

import (
	"context"
	"crypto/x509"
	"net/http"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// A node that was switched on without a clock of its own is in its cluster all the same: it keeps its certificate, gets
// one for serving, and knows how wrong its clock is. When that jumps ahead, all goes on.
func TestClockOf1970(t *testing.T) {
	c := newCluster(t)
	cfg := c.config(t)
	joined, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(time.Unix(600, 0))
	cfg.Clock, cfg.Token = clock, ""
	id, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() (skew time.Duration) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := id.transport.RoundTrip(r)
		if err != nil {
			t.Fatalf("at %v: %v", clock.Now(), err)
		}
		_ = answer.Body.Close()
		return id.ClockSkew()
	}
	if skew := ask(); skew > -50*365*24*time.Hour {
		t.Errorf("in 1970 the clock is ahead by %v", skew)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- id.Run(ctx) }()
	eventually(t, func() bool { return id.serving.Load() != nil })
	clock.SetTime(time.Now())
	if skew := ask(); skew.Abs() > time.Minute {
		t.Errorf("with the clock set it is ahead by %v", skew)
	}
	if !id.client.Load().Leaf.Equal(joined.client.Load().Leaf) || !valid(id.client.Load().Leaf, clock.Now()) {
		t.Error("the node has another certificate than before")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What a server shows is believed to be made by now, unless by then the node itself would be nobody.
func TestTimeFor(t *testing.T) {
	c := newCluster(t)
	cfg := c.config(t)
	clock := testingclock.NewFakeClock(time.Now())
	cfg.Clock = clock
	id, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	own, now := id.client.Load().Leaf, clock.Now()
	for name, test := range map[string]struct{ clock, made, want time.Time }{
		"the clock is right":                 {now, now.Add(-time.Hour), now},
		"the clock is behind":                {now, now.Add(time.Minute), now.Add(time.Minute)},
		"the server's is in 2099":            {now, own.NotAfter.Add(time.Hour), now},
		"in 1970, and the server's is older": {time.Unix(0, 0), own.NotBefore.Add(-time.Hour), own.NotBefore},
		"in 1970, and the server's is newer": {time.Unix(0, 0), own.NotBefore.Add(1), own.NotBefore.Add(1)},
		"the node's own has ended":           {own.NotAfter, own.NotAfter.Add(time.Hour), own.NotAfter},
	} {
		clock.SetTime(test.clock)
		id.shownFrom.Store(nil)
		if got := id.timeFor(&x509.Certificate{NotBefore: test.made}); !got.Equal(test.want) {
			t.Errorf("%s: the time is %v, want %v", name, got, test.want)
		}
	}
}
