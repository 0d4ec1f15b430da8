package schedule

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/clusterapi"
	"github.com/everynode/everynode/internal/storage/backup"
	"github.com/everynode/everynode/internal/storage/backup/plan"
)

// shelf is a store in memory that can fail and hang.
type shelf struct {
	mu    sync.Mutex
	held  map[string][]byte
	fails error
	hangs bool
}

func (s *shelf) how() (fails error, hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fails, s.hangs
}

func (s *shelf) set(fails error, hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails, s.hangs = fails, hangs
}

func (s *shelf) Names(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.held)), nil
}

func (s *shelf) Put(ctx context.Context, name string, fill func(io.Writer) error) (int64, error) {
	fails, hangs := s.how()
	if hangs {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	var out bytes.Buffer
	if err := errors.Join(fill(&out), fails); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = out.Bytes()
	return int64(out.Len()), nil
}

func (s *shelf) Remove(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, name)
	return nil
}

// keyFile writes the public half of a new key, and returns the lock that opens.
func keyFile(t *testing.T) (path string, opens backup.Lock) {
	t.Helper()
	secret, public, err := backup.NewKey()
	if err == nil {
		opens, err = backup.Keys([]byte(secret))
	}
	path = filepath.Join(t.TempDir(), "public")
	if err == nil {
		err = os.WriteFile(path, []byte(public), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, opens
}

// source makes small backups.
type source struct {
	manifest backup.Manifest
	differ   atomic.Bool
}

func (s *source) Take(context.Context) (clusterapi.Backup, error) {
	return &source{manifest: backup.Manifest{
		Format: 1, Data: 1, Revision: 5, Created: time.Now().UTC(), Files: []backup.File{backup.Part(backup.Database, nil)},
	}}, nil
}

func (s *source) Disputed() error {
	if s.differ.Load() {
		return errors.New("they differ")
	}
	return nil
}

func (s *source) Manifest() backup.Manifest { return s.manifest }

func (s *source) Write(w io.Writer, l backup.Lock) error {
	return backup.Write(w, l, s.manifest, func(string) (io.Reader, error) { return &bytes.Buffer{}, nil })
}

func (s *source) Close() error { return nil }

func TestScheduledBackups(t *testing.T) {
	key, opens := keyFile(t)
	const id = "0123abcd-0000-4000-8000-000000000000"
	ours := func(context.Context) (string, error) { return id, nil }
	synctest.Test(t, func(t *testing.T) {
		to, events := &shelf{held: map[string][]byte{plan.Name("4123abcd-0", time.Now(), 1): nil}}, record.NewFakeRecorder(100)
		from := &source{}
		s := newScheduled(Options{Every: time.Hour, Keep: 3, KeyFile: key}, to, ours, from, clock.RealClock{}, events)
		metrics := prometheus.NewRegistry()
		if err := s.register(metrics); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		held := func(backups int) []string {
			t.Helper()
			synctest.Wait()
			all, _ := to.Names(ctx)
			names := plan.Of(id, all)
			if len(names) != backups || len(all) != backups+1 {
				t.Errorf("after %v there are %v, want %d backups", s.clock.Now(), names, backups)
			}
			return names
		}
		held(1) // although another cluster has just made one
		time.Sleep(59 * time.Minute)
		held(1)
		time.Sleep(2 * time.Minute)
		held(2)
		time.Sleep(10 * time.Hour)
		last := held(3)
		if _, err := backup.Open(bytes.NewReader(to.held[last[0]]), opens, nil); err != nil {
			t.Errorf("what is kept: %v", err)
		}
		if got := testutil.ToFloat64(s.success); got != float64(plan.Newest(last).Unix()) {
			t.Errorf("the metric says that the last was made at %v, and it was at %v", got, plan.Newest(last))
		}

		// While the databases of several servers differ, what may be wrong pushes nothing out.
		from.differ.Store(true)
		time.Sleep(2 * time.Hour)
		if more := held(5); !slices.Contains(more, last[0]) {
			t.Errorf("%s was removed for one of %v", last[0], more)
		}
		from.differ.Store(false)
		time.Sleep(time.Hour)
		last = held(3)

		// A store that fails loses nothing, and is tried again; so it is with one that hangs.
		to.set(errors.New("the bucket is full"), false)
		time.Sleep(5 * time.Hour)
		if kept := held(3); !slices.Equal(kept, last) {
			t.Errorf("failures changed what is kept from %v to %v", last, kept)
		}
		if failures := testutil.ToFloat64(s.attempts.WithLabelValues("failure")); failures < 10 || failures > 40 {
			t.Errorf("%v failures in 5 hours", failures)
		}
		if e := <-events.Events; !strings.Contains(e, "BackupFailed") || !strings.Contains(e, "the bucket is full") {
			t.Errorf("the event is %q", e)
		}
		to.set(nil, true)
		time.Sleep(3 * time.Hour)
		held(3)
		to.set(nil, false)
		time.Sleep(backupPatience + time.Hour)
		if now := held(3); plan.Newest(now).Before(time.Now().Add(-time.Hour)) {
			t.Errorf("after a store that hung the newest is of %v", plan.Newest(now))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		// The next server goes on from what is there.
		s = newScheduled(s.options, to, ours, from, clock.RealClock{}, events)
		if wait, err := s.once(t.Context()); err != nil || wait <= 0 || testutil.ToFloat64(s.success) == 0 {
			t.Errorf("after a restart it waits %v, %v, and says %v", wait, err, testutil.ToFloat64(s.success))
		}
	})
}

func TestRefusals(t *testing.T) {
	key, _ := keyFile(t)
	good := Options{Every: time.Hour, To: "/srv/backups", Keep: 7, KeyFile: key}
	for want, change := range map[string]func(*Options){
		"":                  func(*Options) {},
		"--backup-schedule": func(o *Options) { o.Every = 0 },
		"is the least":      func(o *Options) { o.Every = time.Second },
		"at least one":      func(o *Options) { o.Keep = 0 },
		"--backup-dir":      func(o *Options) { o.To = "" },
		"neither":           func(o *Options) { o.To = "ftp://x" },
		"--backup-key-file": func(o *Options) { o.KeyFile = "" },
		"no such file":      func(o *Options) { o.KeyFile += "x" },
	} {
		o := good
		change(&o)
		if err := o.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	if err := (Options{Keep: 7}).Check(); err != nil {
		t.Errorf("no backups: %v", err)
	}
}
