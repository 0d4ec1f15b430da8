package network

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2/ktesting"
)

// nft runs the command, one argument a word.
func nft(t *testing.T, args string) string {
	t.Helper()
	out, err := exec.Command("nft", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		t.Errorf("nft %s: %v: %s", args, err, out)
	}
	return string(out)
}

func TestFlushedRulesAreMadeAgain(t *testing.T) {
	inNewNamespace(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		m, err := newMachine()
		if err != nil {
			t.Error(err)
			return
		}
		n := newNetwork(Config{NodeName: "me", Mode: Auto, ConfDir: filepath.Join(t.TempDir(), "net.d")}, m)
		say(n, aNode("me", "10.244.0.0/24", "10.0.0.1"), false)
		if err := n.sync(ctx, true); err != nil {
			t.Error(err)
			return
		}
		whole := nft(t, "list table ip "+table)
		for _, by := range []string{
			"flush ruleset", "delete table ip " + table, "flush table ip " + table, "flush chain ip " + table + " input",
			"flush set ip " + table + " nodes", "delete element ip " + table + " nodes { 10.0.0.1 }",
			"add rule ip " + table + " postrouting drop",
		} {
			nft(t, by)
			if err := n.sync(ctx, true); err != nil {
				t.Errorf("after %q: %v", by, err)
			}
			if now := nft(t, "list table ip "+table); now != whole {
				t.Errorf("after %q the table is\n%s\nwant\n%s", by, now, whole)
			}
		}
		id := nft(t, "-a list table ip "+table)
		if err := n.sync(ctx, true); err != nil {
			t.Error(err)
		}
		if again := nft(t, "-a list table ip "+table); again != id {
			t.Errorf("rules that nobody changed were made again:\n%s", again)
		}
	})
}
