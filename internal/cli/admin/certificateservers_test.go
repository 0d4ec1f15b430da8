package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/storage/members"
)

// Servers that have not followed hold the end up, by name; after the end the command waits until
// none goes by the old authority.
func TestFinishWaitsForServers(t *testing.T) {
	var list members.List
	dir := clusterOf(t, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(list) })
	command := func(patience time.Duration, args ...string) (string, error) {
		var out bytes.Buffer
		r := peerRotation{rotation{dataDir: dir, which: pki.PeerAuthority, command: "everynode certificates rotate-ca",
			now: time.Now(), out: &out}, patience}
		err := r.run(t.Context(), len(args) > 0, len(args) > 1)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("the error has several lines: %v", err)
		}
		return out.String(), err
	}
	if _, err := command(time.Minute); err == nil || !strings.Contains(err.Error(), "speaks to no other") {
		t.Errorf("a server that is alone: %v", err)
	}
	peers := filepath.Join(dir, "peers")
	if _, err := pki.OpenPeers(peers, "127.0.0.1", clock.RealClock{}); err != nil {
		t.Fatal(err)
	}
	before, err := pki.AuthorityHash(peers, pki.PeerAuthority)
	if err != nil {
		t.Fatal(err)
	}
	list.Servers = []members.Server{{Name: "m1", PeerStanding: pki.PeerStanding{Outdated: true}}, {Name: "m2"}}
	if _, err := command(time.Minute); err == nil ||
		!strings.Contains(err.Error(), "m1 still trust the authority before this one") {
		t.Errorf("a replacement on top of one that is not over: %v", err)
	}
	list.Servers[0].Outdated = false
	if out, err := command(time.Minute); err != nil || !strings.Contains(out, "--servers --finish") {
		t.Errorf("%q, %v", out, err)
	}
	hash, err := pki.AuthorityHash(peers, pki.PeerAuthority)
	if err != nil || hash == before {
		t.Fatalf("the authority is %s, and was %s, %v", hash, before, err)
	}
	list.Servers = []members.Server{{Name: "m1", PeerStanding: pki.PeerStanding{Authority: hash}},
		{Name: "m2", PeerStanding: pki.PeerStanding{Authority: before}},
		{Name: "m3", Problem: "does not answer"}, {ID: "4", Version: "v1.30.0"}}
	if _, err := command(time.Minute, "finish"); err == nil ||
		!strings.Contains(err.Error(), "m2, m3, 4 have no certificate of the new CA yet") ||
		!strings.Contains(err.Error(), "--force") {
		t.Errorf("while servers have not followed: %v", err)
	}
	if _, err := os.Stat(filepath.Join(peers, "peer-ca-previous.crt")); err != nil {
		t.Errorf("it has ended all the same: %v", err)
	}
	list.Servers = []members.Server{{Name: "m1", PeerStanding: pki.PeerStanding{Authority: hash}},
		{Name: "m2", PeerStanding: pki.PeerStanding{Authority: hash, Outdated: true}}}
	if _, err := command(time.Millisecond, "finish"); err == nil ||
		!strings.Contains(err.Error(), "still to come: m2") {
		t.Errorf("while one goes by the old one: %v", err)
	}
	if _, err := os.Stat(filepath.Join(peers, "peer-ca-previous.crt")); !os.IsNotExist(err) {
		t.Errorf("the old one is there: %v", err)
	}
	if _, err := command(time.Minute, "finish"); err == nil || !strings.Contains(err.Error(), "nothing to finish") {
		t.Errorf("a second end: %v", err)
	}
	list.Servers[1].Outdated = false
	for _, args := range [][]string{nil, {"finish", "force"}} {
		if out, err := command(time.Minute, args...); err != nil || len(args) > 0 &&
			!strings.Contains(out, "Finished. What was replaced is no longer trusted.") {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
}
