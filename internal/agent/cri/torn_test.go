package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	internalapi "k8s.io/cri-api/pkg/apis"
)

// unstoppable is a runtime that stops a sandbox only if it can read, or does not find, what was noted of its network.
type unstoppable struct {
	internalapi.RuntimeService
	note  string
	calls int
}

func (u *unstoppable) StopPodSandbox(context.Context, string) error {
	u.calls++
	content, err := os.ReadFile(u.note)
	if err == nil && !strings.HasPrefix(string(content), "{") {
		return errors.New("failed to destroy network for sandbox: failed to get network cached result: unexpected end of JSON input")
	}
	return nil
}

// A machine that lost its power has notes of networks that are empty. The sandbox is given up all the same; nobody else's
// note goes, nor one that can be read.
func TestStopAfterPowerLoss(t *testing.T) {
	for what, c := range map[string]struct {
		note, content string
		calls         int
		stopped, left bool
	}{
		"an empty note":           {"everynode-abc-eth0", "", 2, true, false},
		"a note that breaks off":  {"everynode-abc-eth0", "[1, ", 2, true, false},
		"a whole note":            {"everynode-abc-eth0", "{}", 1, true, true},
		"whole, and it fails":     {"everynode-abc-eth0", "[]", 1, false, true},
		"another sandbox's":       {"everynode-abcd-eth0", "", 1, false, true},
		"part of another's name":  {"everynode-xabc-eth0", "", 1, false, true},
		"no note, all is as ever": {"", "", 1, true, false},
	} {
		r := testRuntime(t)
		r.cfg.CNIResults = t.TempDir()
		u := &unstoppable{note: filepath.Join(r.cfg.CNIResults, c.note)}
		r.service = u
		if c.note != "" {
			if err := os.WriteFile(u.note, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := r.StopSandbox(t.Context(), "abc")
		if (err == nil) != c.stopped || u.calls != c.calls {
			t.Errorf("%s: %v after %d calls", what, err, u.calls)
		}
		if _, err := os.Stat(u.note); c.note != "" && (err == nil) != c.left {
			t.Errorf("%s: the note is there: %v", what, err)
		}
	}
	if found, err := forgetTorn(filepath.Join(t.TempDir(), "none"), "abc"); found || err != nil {
		t.Errorf("without a folder: %v, %v", found, err)
	}
}
