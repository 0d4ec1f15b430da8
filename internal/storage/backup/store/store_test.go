package store

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/storage/backup/plan"
)

// s3 starts a server that speaks S3, in a process of its own.
func s3(t *testing.T) (endpoint string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "s3")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../../../../test/s3server"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build a server of S3: %v\n%s", err, out)
	}
	server := exec.Command(program)
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = server.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the server of S3 does not say where it is: %v", err)
	}
	return strings.TrimSpace(line)
}

func TestStores(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "backups")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-long-secret")
	for kind, address := range map[string]string{"folder": filepath.Join(t.TempDir(), "not/there/yet"), "bucket": "s3://fleet/a/b?region=us-east-1&endpoint=" + s3(t)} {
		t.Run(kind, func(t *testing.T) {
			s, err := Open(address)
			if err != nil {
				t.Fatal(err)
			}
			holds(t, s)
			large := strings.Repeat("0123456789abcdef", 3<<20/2) // of more than one part
			for name, content := range map[string]string{"large": large, "small": "x"} {
				if size, err := s.Put(t.Context(), name, func(w io.Writer) error { _, err := io.WriteString(w, content); return err }); err != nil || size != int64(len(content)) {
					t.Errorf("%s: %d bytes, %v", name, size, err)
				}
			}
			holds(t, s, "large", "small")
			broken := errors.New("the disk is gone")
			for _, before := range []string{"", "x", large} {
				_, err := s.Put(t.Context(), "half", func(w io.Writer) error { _, err := io.WriteString(w, before); return errors.Join(err, broken) })
				if !errors.Is(err, broken) {
					t.Errorf("a backup that fails after %d bytes: %v", len(before), err)
				}
			}
			holds(t, s, "large", "small")
			for range 2 {
				if err := s.Remove(t.Context(), "small"); err != nil {
					t.Error(err)
				}
			}
			holds(t, s, "large")
			if kind == "bucket" {
				t.Setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
				thief, err := Open(address)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := thief.Names(t.Context()); err == nil {
					t.Error("a wrong key lists the bucket")
				}
			}
		})
	}
}

func holds(t *testing.T, s Store, want ...string) {
	t.Helper()
	names, err := s.Names(t.Context())
	slices.Sort(names)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("it holds %v, %v, want %v", names, err, want)
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"": "no folder", "https://x/y": "neither a folder", "s3://": "no bucket", "s3://k:s@b/": "do not belong", "s3://b?endpoint=ftp://x": "https://HOST",
		"s3://b?endpoint=x:9000": "https://HOST", "s3://b?endpoint=https://x/path": "https://HOST", "s3://b?colour=red": "colour",
		"/srv": "", "s3://b/c?endpoint=http://127.0.0.1:9": "", "s3://b": "",
	} {
		_, err := Open(address)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
}

// A folder is not taken through what somebody else has put there.
func TestFolderTakesNoLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "name")); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "name", func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }); err == nil {
		t.Error("a link is followed, or replaced")
	}
	holds(t, s)
}

// deaf takes connections and never answers.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}

// A bucket that hangs is given up when the time is over, and nothing waits for it any more.
func TestBucketThatHangs(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "backups")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-long-secret")
	s, err := Open("s3://fleet?region=us-east-1&endpoint=" + deaf(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := s.Names(ctx); err == nil {
		t.Error("it is listed")
	}
	written := make(chan error, 1)
	_, err = s.Put(ctx, "x", func(w io.Writer) error {
		_, err := io.Copy(w, endless{})
		written <- err
		return err
	})
	if err == nil {
		t.Error("it took a backup")
	}
	select {
	case <-written:
	case <-time.After(time.Minute):
		t.Error("whoever writes the backup waits for ever")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Half a backup of a process that was killed goes after a day; one that is written stays.
func TestHalvesGo(t *testing.T) {
	dir := t.TempDir()
	name := plan.Name("0123abcd", time.Now(), 7)
	old, fresh := filepath.Join(dir, wholefile.Unfinished(name)+"123"), filepath.Join(dir, wholefile.Unfinished(name)+"456")
	for _, path := range []string{old, fresh} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-25*time.Hour)); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err == nil {
		_, err = s.Put(t.Context(), name, func(io.Writer) error { return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old half is there: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("a new half is gone: %v", err)
	}
}
