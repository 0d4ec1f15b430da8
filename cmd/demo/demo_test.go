package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRunDispatch(t *testing.T) {
	for _, tc := range []struct {
		name string
		argv []string
		out  string
		err  string
	}{
		{"by argument", []string{"/demo", "echo", "a", "b"}, "a b\n", ""},
		{"by the name it is called", []string{"/bin/echo", "a"}, "a\n", ""},
		{"nothing asked", []string{"/demo"}, "", "usage: demo COMMAND"},
		{"unknown", []string{"/demo", "dance"}, "", `unknown command "dance"`},
		{"a lookup of loopback", []string{"/demo", "lookup", "a", "127.0.0.1"}, "127.0.0.1\n", ""},
		{"a lookup of an unknown type", []string{"/demo", "lookup", "mx", "x"}, "", `lookup: unknown type "mx"`},
		{"failure names the command", []string{"/demo", "cat", "/no/such"}, "", "cat: open /no/such"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(context.Background(), tc.argv, &out)
			if out.String() != tc.out {
				t.Errorf("printed %q, want %q", out.String(), tc.out)
			}
			if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want one with %q", err, tc.err)
			}
		})
	}
}

func TestFailEndsWithTheStatusAskedFor(t *testing.T) {
	var code exitCode
	err := run(context.Background(), []string{"demo", "fail", "--code", "7"}, &bytes.Buffer{})
	if !errors.As(err, &code) || code != 7 {
		t.Fatalf("got %v, want exit status 7", err)
	}
}

func TestTailPrintsEachFinishedLineOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.log")
	if err := os.MkdirAll(filepath.Join(dir, "pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	add := func(path, text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	tl := &tail{dir: dir, skip: map[string]bool{"pods": true}, offsets: map[string]int64{}, out: &out, node: "n1"}
	for _, step := range []struct{ name, file, text, want string }{
		{"a line", file, "one\n", "n1 agent.log: one\n"},
		{"nothing new", file, "", ""},
		{"half a line waits", file, "tw", ""},
		{"the other half", file, "o\n", "n1 agent.log: two\n"},
		{"a skipped folder", filepath.Join(dir, "pods", "x.log"), "own output\n", ""},
	} {
		out.Reset()
		add(step.file, step.text)
		tl.scan()
		if out.String() != step.want {
			t.Errorf("%s: printed %q, want %q", step.name, out.String(), step.want)
		}
	}
	out.Reset()
	if err := os.WriteFile(file, []byte("new\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tl.scan()
	if want := "n1 agent.log: new\n"; out.String() != want {
		t.Errorf("after truncation: printed %q, want %q", out.String(), want)
	}
}

// onWrite is a writer that has something done when it is first written to.
type onWrite struct {
	bytes.Buffer
	do func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	if do := w.do; do != nil {
		w.do = nil
		do()
	}
	return w.Buffer.Write(p)
}

func TestWhatIsWrittenLastIsPrinted(t *testing.T) {
	dir := t.TempDir()
	ctx, end := context.WithCancel(t.Context())
	tl := &tail{dir: dir, offsets: map[string]int64{}, node: "n1"}
	// A file comes, and the end, while the files are being read.
	out := &onWrite{do: func() {
		if err := os.WriteFile(filepath.Join(dir, "b.log"), []byte("two\n"), 0o644); err != nil {
			t.Error(err)
		}
		end()
	}}
	tl.out = out
	if err := os.WriteFile(filepath.Join(dir, "a.log"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tl.follow(ctx, time.Hour)
	if want := "n1 a.log: one\nn1 b.log: two\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestTalkSaysALastLine(t *testing.T) {
	t.Setenv("POD_NAME", "p")
	ctx, end := context.WithCancel(t.Context())
	out := &onWrite{do: end}
	if err := run(ctx, []string{"demo", "talk"}, out); err != nil || out.String() != "p: line 1\np: the last of 2 lines\n" {
		t.Errorf("printed %q, %v", out.String(), err)
	}
}

func TestMetricsText(t *testing.T) {
	got := string(metrics("n1", "0.50 0.1 0.1 1/2 3\n", "MemTotal: 2 kB\nMemFree: 9 kB\nMemAvailable: 1 kB\nbroken\n", 3))
	for _, want := range []string{
		`demo_node_load1{node="n1"} 0.5`, `demo_node_memory_total_bytes{node="n1"} 2048`,
		`demo_node_memory_available_bytes{node="n1"} 1024`, `demo_scrapes_total{node="n1"} 3`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("missing %q in:\n%s", want, got)
		}
	}
}

func TestTar(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(from, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "a", "b", "file"), []byte("content"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("b/file", filepath.Join(from, "a", "link")); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := run(context.Background(), []string{"tar", "-cf", "-", "-C", from, "a"}, &archive); err != nil {
		t.Fatal(err)
	}
	if err := unpackFiles(to, &archive); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(to, from, "a", "link"))
	if err != nil || string(got) != "content" {
		t.Errorf("read %q, %v through the link", got, err)
	}
	for text, ok := range map[string]bool{
		"": false, "cf - a": true, "-cf - a b": true, "-cf x a": false, "-cxf - a": false, "--no-same-owner -xmf - -C /d": true, "-C /d": false,
	} {
		if o, err := parseTar(strings.Fields(text)); (err == nil) != ok {
			t.Errorf("tar %s is understood as %+v, %v", text, o, err)
		}
	}
}
