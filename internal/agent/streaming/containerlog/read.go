package containerlog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/untrusted/plainfile"
)

const (
	// lookEvery is how often a followed file is looked at.
	lookEvery = 100 * time.Millisecond
	// askEvery is how often somebody is asked whether the container still runs.
	askEvery = time.Second
	// maxRecord is the longest record, in bytes, that is read; those of runtimes have 16 KiB.
	maxRecord = 256 * 1024
)

// Options say which part of a log to read, and how.
type Options struct {
	// Tail is how many lines at the end to read, nil for all.
	Tail *int64
	// Limit is how many bytes to write at most, nil for no bound.
	Limit *int64
	// Since leaves out older records.
	Since time.Time
	// Timestamps begins each line with its time.
	Timestamps bool
	// Running makes Read follow the file for as long as it is true. nil reads what is there.
	Running func(ctx context.Context) (bool, error)
}

// Read writes a log below the folder root to stdout and stderr; either may be nil to leave it out. When following, it
// ends with nil when the container has ended and all is read, or when ctx ends. Flushing is the writers' business.
func Read(ctx context.Context, root, path string, options Options, stdout, stderr io.Writer) error {
	file, err := plainfile.Open(root, path)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	r := &reader{
		root: root, path: path, file: file, options: options, left: -1,
		out:  map[Stream]io.Writer{Stdout: stdout, Stderr: stderr},
		open: map[Stream]bool{},
	}
	defer func() { _ = r.file.Close() }() // it was only read
	if options.Limit != nil {
		r.left = *options.Limit
	}
	if options.Tail != nil {
		info, err := file.Stat()
		if err != nil {
			return fmt.Errorf("look at log: %w", err)
		}
		start, err := tailStart(file, info.Size(), *options.Tail)
		if err != nil {
			return err
		}
		if _, err := file.Seek(start, io.SeekStart); err != nil {
			return fmt.Errorf("seek in log: %w", err)
		}
	}
	r.lines = bufio.NewReaderSize(file, 32*1024)
	if err = r.run(ctx); errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// errEnough ends reading when the limit is reached.
var errEnough = errors.New("limit reached")

// reader is one Read.
type reader struct {
	root    string
	path    string
	file    *os.File
	lines   *bufio.Reader
	begun   []byte // a line whose end is not there yet
	options Options
	left    int64 // bytes that may still be written, negative for no bound
	out     map[Stream]io.Writer
	open    map[Stream]bool // the last record of the stream goes on in its next one
}

func (r *reader) run(ctx context.Context) error {
	if r.left == 0 {
		return nil
	}
	if err := r.drain(); err != nil || r.options.Running == nil {
		return errors.Join(err, r.flush(err))
	}
	running, asked := true, time.Time{}
	for ctx.Err() == nil {
		if time.Since(asked) >= askEvery {
			var err error
			if running, err = r.options.Running(ctx); err != nil {
				return ignoreEnd(ctx, fmt.Errorf("follow log: %w", err))
			}
			asked = time.Now()
		}
		// Asked first, read then: what a container wrote before it ended is there.
		if err := r.drain(); err != nil {
			return err
		}
		if !running {
			return r.flush(nil)
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pause waits a moment and then turns to the new file if the log was rotated. The runtime may write to the old file for
// a moment after it has made the new one; that moment is over then.
func (r *reader) pause(ctx context.Context) error {
	next, err := r.rotated()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(lookEvery):
	}
	if next == nil {
		return nil
	}
	return r.turnTo(next)
}

// turnTo reads the rest of the old file and goes on with the next.
func (r *reader) turnTo(next *os.File) error {
	if err := errors.Join(r.drain(), r.flush(nil)); err != nil {
		return errors.Join(err, next.Close())
	}
	err := r.file.Close()
	r.file = next
	r.lines.Reset(next)
	return err
}

// rotated opens the file that has taken the place of the one being read; nil when there is none.
func (r *reader) rotated() (*os.File, error) {
	now, err := os.Lstat(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // renamed already, and the next one is not made yet
	}
	if err != nil {
		return nil, fmt.Errorf("look at log: %w", err)
	}
	mine, err := r.file.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at log: %w", err)
	}
	if os.SameFile(now, mine) {
		return nil, nil
	}
	next, err := plainfile.Open(r.root, r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return next, nil
}

// drain writes all complete lines up to the end of the file.
func (r *reader) drain() error {
	for {
		part, err := r.lines.ReadSlice('\n')
		// Runtimes write no record that long. What is beyond is left out; the file may have no ends of lines at all.
		r.begun = append(r.begun, part[:min(len(part), max(maxRecord-len(r.begun), 0))]...)
		switch {
		case err == nil:
			line := r.begun
			r.begun = r.begun[:0]
			if err := r.write(line); err != nil {
				return err
			}
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return fmt.Errorf("read log: %w", err)
		}
	}
}

// flush writes a last line that never got its end, unless there was an error before.
func (r *reader) flush(err error) error {
	if err != nil || len(r.begun) == 0 {
		return nil
	}
	line := r.begun
	r.begun = nil
	return r.write(line)
}

func (r *reader) write(line []byte) error {
	found, err := parse(line)
	if err != nil {
		klog.Background().V(2).Info("Skipping what is no log line", "path", r.path, "err", err)
		return nil
	}
	out, goesOn := r.out[found.stream], r.open[found.stream]
	r.open[found.stream] = found.partial
	if out == nil || found.time.Before(r.options.Since) {
		return nil
	}
	text := make([]byte, 0, len(found.text)+40)
	if r.options.Timestamps && !goesOn {
		text = append(found.time.AppendFormat(text, timestamp), ' ')
	}
	text = append(text, found.text...)
	if !found.partial {
		text = append(text, '\n')
	}
	if r.left >= 0 {
		text = text[:min(int64(len(text)), r.left)]
		r.left -= int64(len(text))
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	if r.left == 0 {
		return errEnough
	}
	return nil
}

// timestamp shows nanoseconds with all their digits, so that lines keep their columns and can be sorted.
const timestamp = "2006-01-02T15:04:05.000000000Z07:00"

// ignoreEnd makes an error that comes from the end of ctx no error.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
