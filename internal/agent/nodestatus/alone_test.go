package nodestatus

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
)

// lines counts what is logged.
type lines struct{ count atomic.Int32 }

func (l *lines) Write(p []byte) (int, error) {
	l.count.Add(1)
	return len(p), nil
}

// Hours without a server, and without a way to any: the node looks at itself as often as with one, and logs little.
func TestHoursAlone(t *testing.T) {
	root, dataDir := tree(t, nil), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, root, dataDir)
		var asked, tries atomic.Int32
		own := s.reporter.cfg.Runtime
		s.reporter.cfg.Runtime = func(ctx context.Context) (Runtime, error) {
			asked.Add(1)
			return own(ctx)
		}
		var away atomic.Bool
		s.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if !away.Load() {
				return false, nil, nil
			}
			if action.GetResource().Resource == "nodes" {
				tries.Add(1)
			}
			return true, nil, errors.New("dial tcp 10.0.0.1:6443: connect: network is unreachable")
		})
		var node atomic.Pointer[corev1.Node]
		s.reporter.cfg.Node = node.Load // what the watch showed last
		s.run(t)
		time.Sleep(10 * time.Minute)
		node.Store(s.node(t))
		away.Store(true)
		asked.Store(0)
		written := &lines{}
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
		klog.SetOutputBySeverity("INFO", written) // which has the lines of all severities
		defer klog.LogToStderr(true)
		const hours = 4
		time.Sleep(hours * time.Hour)
		synctest.Wait()
		klog.Flush()
		const looks = hours * 360
		if got := asked.Load(); got < looks*9/10 || got > looks*11/10 {
			t.Errorf("the runtime was asked %d times, want about %d", got, looks)
		}
		if got := tries.Load(); got > looks*11/10 {
			t.Errorf("the server was asked %d times, want at most once a look", got)
		}
		if got := written.count.Load(); got == 0 || got > hours*60 {
			t.Errorf("%d lines are logged, want some, and less than one a minute", got)
		}
		s.cancel()
		<-s.done
	})
}

func TestRests(t *testing.T) {
	var r rests
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if got := r.after(untold); got != want*time.Second {
			t.Errorf("after look %d of which nobody could be told it rests %s, want %d s", i, got, want)
		}
	}
	for range soonTimes {
		if got := r.after(notReady); got != lookSoon {
			t.Fatalf("a node that is not ready yet rests %s", got)
		}
	}
	if got := r.after(notReady); got != lookEvery {
		t.Errorf("a node that is not ready for long rests %s", got)
	}
	if r.after(good) != lookEvery || r.after(notReady) != lookSoon || r.after(untold) != lookSoon {
		t.Error("what is new is not looked at soon")
	}
}
