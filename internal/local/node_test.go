package local

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A socket's file is there from bind on; connections are taken from listen on.
func TestListens(t *testing.T) {
	// Short names: the path of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "ev")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	expect := func(when string, want bool) {
		t.Helper()
		if got := listens(ctx, path); got != want {
			t.Errorf("%s: listens is %v", when, got)
		}
	}
	expect("before there is a file", false)

	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	expect("bound, and not listening", false)
	if err := unix.Listen(fd, 8); err != nil {
		t.Fatal(err)
	}
	expect("listening", true)
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	closed = true
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	expect("after its end, with the file left behind", false)
}
