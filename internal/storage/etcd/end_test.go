package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/storage/etcd/offline"
)

// cutLog makes the log of a member end before its database file, as a loss of power or a full
// disk does while the member takes over what the others have.
func cutLog(t *testing.T, c *crowd, other, m *one) {
	t.Helper()
	logs, old := filepath.Join(m.dir, "member", "wal"), filepath.Join(t.TempDir(), "wal")
	m.stop()
	must(t, os.CopyFS(old, os.DirFS(logs)))
	c.start(m)
	id := m.Self()
	for n := range 50 {
		put(t, m, fmt.Sprint("cut-", n), "x")
	}
	m.stop()
	must(t, os.RemoveAll(logs))
	must(t, os.CopyFS(logs, os.DirFS(old)))
	// The others must not remember that the member had agreed to it: by what it wrote down, and
	// a leader by what it heard.
	_, err := other.newClient().KV.Delete(t.Context(), offline.WatermarkPrefix+id)
	must(t, err)
	for _, l := range c.all {
		if l.Server == nil || l.Leader() != l.Self() {
			continue
		}
		next := slices.IndexFunc(c.all, func(n *one) bool { return n.Server != nil && n != l })
		must(t, l.etcd.Server.MoveLeader(t.Context(), uint64(l.etcd.Server.MemberID()),
			uint64(c.all[next].etcd.Server.MemberID())))
		break
	}
	has, err := offline.Check(m.dir)
	must(t, err)
	if has.Last >= has.Applied {
		t.Fatalf("the log ends at %d, the file at %d", has.Last, has.Applied)
	}
}

func TestLogThatEndsBeforeTheFileIsMadeGoodByOthers(t *testing.T) {
	c, first, second, third := three(t)
	cutLog(t, c, second, third)
	c.start(third)
	wants(t, third, "cut-49", "x")
	first.stop()
	put(t, third, "after", "1")
	wants(t, second, "after", "1")

	first.options.Peers.Known = second.Members()
	c.start(first)
	cutLog(t, c, second, first)
	second.stop()
	third.stop()
	before := state(t, first.dir)
	said := make(chan string, 100)
	log := funcr.New(func(_, line string) {
		select {
		case said <- line:
		default:
		}
	}, funcr.Options{})
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), log))
	ended := make(chan error, 1)
	go func() {
		s, err := Start(ctx, first.options)
		if err == nil {
			s.Close()
		}
		ended <- err
	}()
	select {
	case line := <-said:
		if !strings.Contains(line, "does not have") || !strings.Contains(line, "third") {
			t.Errorf("it says %s", line)
		}
	case err := <-ended:
		t.Fatalf("it ended with %v while the others are silent", err)
	case <-time.After(time.Minute):
		t.Fatal("it says nothing")
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if after := state(t, first.dir); after != before {
		t.Errorf("the disk had\n%sand has\n%s", before, after)
	}

	alone := first.options
	alone.Peers = nil
	if s, err := Start(t.Context(), alone); err == nil {
		s.Close()
		t.Error("alone it starts without a part of its log")
	} else if !strings.HasSuffix(err.Error(), offline.BackupHint) {
		t.Errorf("alone it says %v", err)
	}
}
