package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// firstBytes bounds what is printed of a file that was there before: its tail.
const firstBytes = 1024

// tail remembers how far each file has been read.
type tail struct {
	dir     string
	skip    map[string]bool
	offsets map[string]int64
	out     io.Writer
	node    string
}

// logAgent prints, with the node's name, what is added to the files below a
// folder, to their ends also when it is told to end. Containers' own logs are
// skipped by default: this program's output is one of them, and would feed itself.
func logAgent(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("log-agent", flag.ContinueOnError)
	dir := flags.String("dir", "/var/log", "folder to read")
	skip := flags.String("skip", "pods,containers", "folders below it that are not read, separated by commas")
	every := flags.Duration("every", time.Second, "how often to look")
	to := flags.String("to", "", "file, outside of the folder, to which lines are added instead of being printed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := os.ReadDir(*dir); err != nil {
		return err
	}
	if *to != "" {
		file, err := os.OpenFile(*to, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		defer file.Close()
		out = file
	}
	t := &tail{dir: *dir, skip: map[string]bool{}, offsets: map[string]int64{}, out: out, node: node()}
	for name := range strings.SplitSeq(*skip, ",") {
		t.skip[name] = true
	}
	fmt.Fprintf(out, "%s: log agent %s reads %s\n", t.node, os.Getenv("VERSION"), *dir)
	t.follow(ctx, *every)
	return nil
}

// follow scans until it is told to end, and once more then: what was written last is what people look for.
func (t *tail) follow(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		t.scan()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	t.scan()
}

// talk prints a numbered line each second, and a last one when it is told to end.
func talk(ctx context.Context, _ []string, out io.Writer) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for n := 1; ; n++ {
		fmt.Fprintf(out, "%s: line %d\n", pod(), n)
		select {
		case <-ctx.Done():
			fmt.Fprintf(out, "%s: the last of %d lines\n", pod(), n+1)
			return nil
		case <-ticker.C:
		}
	}
}

// scan prints what every file gained since the last scan. A file that cannot
// be read is left for the next scan: logs come and go under a reader.
func (t *tail) scan() {
	_ = filepath.WalkDir(t.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel, _ := filepath.Rel(t.dir, path)
		if entry.IsDir() && t.skip[rel] {
			return filepath.SkipDir
		}
		if entry.Type().IsRegular() {
			t.read(path, rel)
		}
		return nil
	})
}

func (t *tail) read(path, rel string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return
	}
	from, known := t.offsets[path]
	if !known && info.Size() > firstBytes {
		from = info.Size() - firstBytes
	}
	if info.Size() < from {
		from = 0 // truncated: start over
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return
	}
	lines := bufio.NewReader(f)
	if !known && from > 0 {
		cut, _ := lines.ReadString('\n')
		from += int64(len(cut))
	}
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // an unfinished line is printed when it is finished
		}
		from += int64(len(line))
		fmt.Fprintf(t.out, "%s %s: %s", t.node, rel, line)
	}
	t.offsets[path] = from
}
