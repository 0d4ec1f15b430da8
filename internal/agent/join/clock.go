package join

import (
	"crypto/x509"
	"net/http"
	"time"
)

// Now is the time as far as the node knows: that of its clock, but not before the certificates were made that its
// cluster has shown it, its own among them. A machine without a clock of its own may begin in 1970.
func (id *Identity) Now() time.Time {
	now := id.cfg.Clock.Now()
	pair := id.client.Load()
	if pair == nil || !now.Before(pair.Leaf.NotAfter) {
		return now
	}
	if now.Before(pair.Leaf.NotBefore) {
		now = pair.Leaf.NotBefore
	}
	if shown := id.shownFrom.Load(); shown != nil && now.Before(*shown) {
		now = *shown
	}
	return now
}

// timeFor is the time at which a server's certificate is verified. One that was made later than now shows that the
// node's clock is behind, if its authority is right. What would end the node's own certificate is not believed.
func (id *Identity) timeFor(shown *x509.Certificate) time.Time {
	now, pair := id.Now(), id.client.Load()
	if pair != nil && now.Before(shown.NotBefore) && shown.NotBefore.Before(pair.Leaf.NotAfter) {
		return shown.NotBefore
	}
	return now
}

// believed takes in a server's certificate that was verified.
func (id *Identity) believed(shown *x509.Certificate) {
	if last := id.shownFrom.Load(); last == nil || last.Before(shown.NotBefore) {
		id.shownFrom.Store(&shown.NotBefore)
	}
}

// ClockSkew is how far the machine's clock is ahead of the one of the server that answered last; negative if it is
// behind, and zero before any has answered.
func (id *Identity) ClockSkew() time.Duration { return time.Duration(id.servers.skew.Load()) }

// noteTime compares the clocks by an answer. Its time is in whole seconds.
func (s *servers) noteTime(answer *http.Response) {
	if answer == nil {
		return
	}
	at, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return // not a server's own answer
	}
	s.skew.Store(int64(s.clock.Now().Sub(at)))
}
