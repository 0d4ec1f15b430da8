package containerlog

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// line is one record; second counts from a fixed time.
func line(second int, stream, tag, text string) string {
	at := time.Date(2026, 8, 1, 12, 0, second, 5, time.UTC)
	return fmt.Sprintf("%s %s %s %s\n", at.Format(time.RFC3339Nano), stream, tag, text)
}

func write(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func number(n int64) *int64 { return &n }

func TestRead(t *testing.T) {
	path := write(t,
		line(1, "stdout", "F", "one"),
		line(2, "stderr", "F", "two"),
		"no log line at all\n",
		line(3, "stdout", "P", "long "),
		line(3, "stderr", "F", "between"),
		line(4, "stdout", "F:more", "line"),
		line(5, "stdout", "F", ""),
		strings.TrimSuffix(line(6, "stdout", "F", "unended"), "\n"),
	)
	tests := []struct {
		name    string
		options Options
		streams string
		want    string
	}{
		{"all", Options{}, "oe", "one\ntwo\nlong between\nline\n\nunended\n"},
		{"stdout", Options{}, "o", "one\nlong line\n\nunended\n"},
		{"stderr", Options{}, "e", "two\nbetween\n"},
		{"since", Options{Since: time.Date(2026, 8, 1, 12, 0, 5, 0, time.UTC)}, "oe", "\nunended\n"},
		{"timestamps", Options{Timestamps: true}, "o",
			"2026-08-01T12:00:01.000000005Z one\n2026-08-01T12:00:03.000000005Z long line\n2026-08-01T12:00:05.000000005Z \n2026-08-01T12:00:06.000000005Z unended\n"},
		{"tail 0", Options{Tail: number(0)}, "oe", ""},
		{"tail 1", Options{Tail: number(1)}, "oe", "unended\n"},
		{"tail 2", Options{Tail: number(2)}, "oe", "\nunended\n"},
		{"tail 3", Options{Tail: number(3)}, "oe", "line\n\nunended\n"},
		{"tail 5, in which a long line is one", Options{Tail: number(5)}, "oe", "two\nlong between\nline\n\nunended\n"},
		{"tail of more than there is", Options{Tail: number(99)}, "o", "one\nlong line\n\nunended\n"},
		{"limit 0", Options{Limit: number(0)}, "oe", ""},
		{"limit", Options{Limit: number(6)}, "oe", "one\ntw"},
		{"limit at the end of a line", Options{Limit: number(4)}, "oe", "one\n"},
		{"tail and limit", Options{Tail: number(2), Limit: number(3)}, "oe", "\nun"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			var stdout, stderr io.Writer
			if strings.Contains(test.streams, "o") {
				stdout = &out
			}
			if strings.Contains(test.streams, "e") {
				stderr = &out
			}
			if err := Read(t.Context(), filepath.Dir(path), path, test.options, stdout, stderr); err != nil {
				t.Fatal(err)
			}
			if out.String() != test.want {
				t.Errorf("read %q, want %q", out.String(), test.want)
			}
		})
	}
	if err := Read(t.Context(), filepath.Dir(path), path+".gone", Options{}, nil, nil); !os.IsNotExist(err) && err == nil {
		t.Errorf("a missing file gives %v", err)
	}
}

// TestTailAcrossBlocks compares with counting from the front, for lines around the size of a block.
func TestTailAcrossBlocks(t *testing.T) {
	var lines []string
	for i := range 40 {
		lines = append(lines, line(i, "stdout", "F", fmt.Sprint(i)+strings.Repeat("x", i*997%(block/4))))
	}
	lines[7] = line(7, "stdout", "F", strings.Repeat("y", 3*block))
	path := write(t, lines...)
	for n := range int64(45) {
		var out bytes.Buffer
		if err := Read(t.Context(), filepath.Dir(path), path, Options{Tail: &n}, &out, nil); err != nil {
			t.Fatal(err)
		}
		if got, want := int64(strings.Count(out.String(), "\n")), min(n, 40); got != want {
			t.Errorf("the last %d lines are %d", n, got)
		}
	}
}

// collector is a writer whose content can be awaited.
type collector struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (c *collector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p)
	select {
	case c.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// await waits until the text ends so.
func (c *collector) await(t *testing.T, end string) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		c.mu.Lock()
		text := c.text.String()
		c.mu.Unlock()
		if strings.HasSuffix(text, end) {
			return
		}
		select {
		case <-c.more:
		case <-deadline:
			t.Fatalf("got %q, which never ends with %q", text, end)
		}
	}
}

func appendTo(t *testing.T, file *os.File, text string) {
	t.Helper()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestFollowAcrossRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	appendTo(t, file, line(1, "stdout", "F", "skipped")+line(2, "stdout", "F", "a"))
	var mu sync.Mutex
	running := true
	out := &collector{more: make(chan struct{}, 1)}
	done := make(chan error, 1)
	go func() {
		done <- Read(context.Background(), filepath.Dir(path), path, Options{Tail: number(1), Running: func(context.Context) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			return running, nil
		}}, out, out)
	}()
	out.await(t, "a\n")
	half := line(3, "stdout", "F", "b")
	appendTo(t, file, half[:10])
	appendTo(t, file, half[10:])
	out.await(t, "b\n")

	// Rotation as runtimes do it: rename, go on writing, make the new file, write a last line to the old one.
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, file, line(4, "stdout", "F", "c"))
	out.await(t, "c\n")
	next, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	appendTo(t, file, line(5, "stdout", "F", "d"))
	appendTo(t, next, line(6, "stderr", "F", "e"))
	out.await(t, "d\ne\n")

	mu.Lock()
	running = false
	mu.Unlock()
	appendTo(t, next, line(7, "stdout", "F", "last"))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := out.text.String(); got != "a\nb\nc\nd\ne\nlast\n" {
		t.Errorf("followed %q", got)
	}
}

// TestLastWordsInTheOldFile writes to the old file after the new one was noticed.
func TestLastWordsInTheOldFile(t *testing.T) {
	path := write(t, line(1, "stdout", "F", "a"))
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	var out bytes.Buffer
	r := &reader{root: filepath.Dir(path), path: path, file: old, lines: bufio.NewReader(old), left: -1, out: map[Stream]io.Writer{Stdout: &out}, open: map[Stream]bool{}}
	defer func() { r.file.Close() }()
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if next, err := r.rotated(); next != nil || err != nil {
		t.Fatalf("while there is no new file, rotated gives %v, %v", next, err)
	}
	if err := os.WriteFile(path, []byte(line(3, "stdout", "F", "c")), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := r.rotated()
	if next == nil || err != nil {
		t.Fatalf("the new file is not noticed: %v", err)
	}
	appendTo(t, writer, line(2, "stdout", "F", "b"))
	if err := r.turnTo(next); err != nil {
		t.Fatal(err)
	}
	if err := r.drain(); err != nil || out.String() != "a\nb\nc\n" {
		t.Errorf("read %q, %v", out.String(), err)
	}
}

// A file that somebody filled with anything but records costs little memory, and hides no record behind it.
func TestLinesWithoutEnd(t *testing.T) {
	endless := strings.Repeat("x", 20*maxRecord)
	for _, text := range []string{endless, endless + "\n" + line(1, "stdout", "F", "last"), line(1, "stdout", "F", "last") + endless} {
		for _, tail := range []*int64{nil, new(int64)} {
			if tail != nil {
				*tail = 2
			}
			path := write(t, text)
			var out bytes.Buffer
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := Read(t.Context(), filepath.Dir(path), path, Options{Tail: tail}, &out, nil); err != nil {
				t.Error(err)
			}
			runtime.ReadMemStats(&after)
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 150*maxRecord {
				t.Errorf("a file of %d bytes took %d bytes of memory", len(text), taken)
			}
			if want := strings.Contains(text, "last"); want && strings.HasSuffix(text, "\n") && out.String() != "last\n" {
				t.Errorf("read %q", out.String())
			}
		}
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	path := write(t, line(1, "stdout", "F", "a"))
	ctx, cancel := context.WithCancel(t.Context())
	out := &collector{more: make(chan struct{}, 1)}
	done := make(chan error, 1)
	go func() {
		done <- Read(ctx, filepath.Dir(path), path, Options{Running: func(context.Context) (bool, error) { return true, nil }}, out, nil)
	}()
	out.await(t, "a\n")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the end of the context is an error: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(line(1, "stdout", "F", "text")))
	f.Add([]byte("2026-08-01T12:00:00Z stderr P"))
	f.Add([]byte(" \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := parse(data)
		if err == nil && !bytes.Contains(data, found.text) {
			t.Errorf("%q is not part of %q", found.text, data)
		}
		if start, err := tailStart(bytes.NewReader(data), int64(len(data)), 1); err != nil || start < 0 || start > int64(len(data)) {
			t.Errorf("the last line of %q begins at %d, %v", data, start, err)
		}
	})
}
