package again

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/podresources"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

// A folder of sockets that cannot be used does not end the agent, and is used once it can be.
func TestSocketThatFailsIsMadeLater(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "pod-resources")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	done := make(chan error, 1)
	go func() {
		done <- Keep(clk, "sockets", podresources.New(podresources.Config{Dir: dir, Clock: clk}).Run)(ctx)
	}()
	wait := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			select {
			case err := <-done:
				t.Fatalf("it ended: %v", err)
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("it never came to pass that %s", what)
			}
		}
	}
	wait("it waits to try again", clk.HasWaiters)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	clk.Step(pause)
	wait("the socket is there", func() bool {
		_, err := os.Stat(filepath.Join(dir, "kubelet.sock"))
		return err == nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// Sockets that somebody removed, one by one or with their folder as when /run is wiped, are made again within a minute.
func TestSocketsThatAreRemovedComeBack(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	for name, serve := range map[string]func(dir string, clk clock.Clock) func(context.Context) error{
		"pod-resources": func(dir string, clk clock.Clock) func(context.Context) error {
			return podresources.New(podresources.Config{Dir: dir, Clock: clk}).Run
		},
		"device-plugins": func(dir string, clk clock.Clock) func(context.Context) error {
			return devices.New(devices.Config{Dir: dir, Clock: clk, Changed: func() {}}).Run
		},
	} {
		for what, remove := range map[string]func(dir string) error{
			"socket": func(dir string) error { return os.Remove(filepath.Join(dir, "kubelet.sock")) },
			"folder": os.RemoveAll,
			"another file": func(dir string) error {
				path := filepath.Join(dir, "kubelet.sock")
				err := os.WriteFile(path+".new", nil, 0o600)
				return errors.Join(err, os.Rename(path+".new", path))
			},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				ctx, cancel := context.WithCancel(ctx)
				dir, clk := filepath.Join(t.TempDir(), name), clocktesting.NewFakeClock(time.Now())
				done := make(chan error, 1)
				go func() { done <- Keep(clk, name, serve(dir, clk))(ctx) }()
				defer func() {
					cancel()
					err := <-done
					if err != nil {
						t.Error(err)
					}
				}()
				reached := func() bool {
					conn, err := net.Dial("unix", filepath.Join(dir, "kubelet.sock"))
					if err == nil {
						_ = conn.Close()
					}
					return err == nil
				}
				podstest.Eventually(t, "it is served", func() bool { return reached() && clk.HasWaiters() })
				err := remove(dir)
				if err != nil {
					t.Fatal(err)
				}
				if reached() {
					t.Fatal("what was removed is reached")
				}
				start := clk.Now()
				podstest.Eventually(t, "a minute is over, or it is served again", func() bool {
					if clk.HasWaiters() {
						clk.Step(time.Second)
					}
					return reached() || clk.Since(start) > time.Minute
				})
				if !reached() {
					t.Error("it is not served again within a minute")
				}
			})
		}
	}
}

func TestAgainEndsWithItsContext(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	calls := 0
	err := Keep(clock.RealClock{}, "part", func(context.Context) error {
		calls++
		cancel()
		return errors.New("broken")
	})(ctx)
	if err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
