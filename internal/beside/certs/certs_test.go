package certs

import (
	"crypto/rand"
	"crypto/x509"
	"maps"
	"testing"
	"time"
)

var names = []string{"everynode.kube-system.svc", "192.0.2.1"}

// accepted reports whether a client that trusts what was held before takes what is served now.
func accepted(t *testing.T, trusted []byte, held map[string][]byte, now time.Time) bool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(trusted) {
		t.Fatal("nothing is trusted")
	}
	c, err := readCertificate(held, serving)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		_, err = c.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, CurrentTime: now})
		if err != nil {
			return false
		}
	}
	return true
}

// TestNeverUntrusted has a year go by, with two looks each half day: what is served is always trusted by whoever read
// the Secret at the look before, and keys change.
func TestNeverUntrusted(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var held map[string][]byte
	var trusted []byte
	authorities, leaves, last := map[string]bool{}, map[string]bool{}, 0
	pause := 30 * time.Minute
	for end := now.AddDate(0, 14, 0); now.Before(end); now, pause = now.Add(pause), 12*time.Hour-pause {
		renewed, err := Renew(held, names, now, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if trusted == nil {
			trusted = Trusted(renewed)
		}
		changed := !maps.EqualFunc(held, renewed, func(a, b []byte) bool { return string(a) == string(b) })
		if (changed || last%100 == 0) && !accepted(t, trusted, renewed, now) {
			t.Fatalf("at %s what is served is not trusted by who looked before", now)
		}
		last++
		held, trusted = renewed, Trusted(renewed)
		authorities[string(held[authority])], leaves[string(held[serving])] = true, true
	}
	if len(authorities) < 2 || len(leaves) < 6 {
		t.Errorf("%d authorities and %d certificates in fourteen months", len(authorities), len(leaves))
	}
}

func TestBrokenIsReportedAndStays(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	held, err := Renew(nil, names, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{authority, serving} {
		broken := maps.Clone(held)
		broken[name] = []byte("nonsense")
		_, err = Renew(broken, names, now, rand.Reader)
		if err == nil || string(broken[name]) != "nonsense" {
			t.Errorf("a broken %s: %v", name, err)
		}
	}
	other, err := Renew(held, append(names, "another.example"), now, rand.Reader)
	if err != nil || string(other[serving]) == string(held[serving]) ||
		string(other[authority]) != string(held[authority]) {
		t.Errorf("another name: %v", err)
	}
}
