package etcd

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"go.uber.org/zap/zapcore"
)

// fatal takes the place of the end of the process where etcd cannot go on, as
// with a full disk.
type fatal struct {
	failed   chan error    // the first reason, for one reader
	happened chan struct{} // closed with the first
	once     sync.Once
}

func newFatal() *fatal {
	return &fatal{failed: make(chan error, 1), happened: make(chan struct{})}
}

// end calls what ends the database, and returns when that has returned, or cannot any more: a goroutine that is held
// here may be one that it waits for.
func (f *fatal) end(end func()) {
	select {
	case <-f.happened: // The database holds its own locks, and ends with the process.
		return
	default:
	}
	ended := make(chan struct{})
	go func() { defer close(ended); end() }()
	select {
	case <-ended:
	case <-f.happened:
	}
}

// report has the database end for a reason, if it has no other.
func (f *fatal) report(err error) {
	select {
	case f.failed <- err:
	default: // the first reason counts
	}
}

// OnWrite implements zapcore.CheckWriteHook. It holds the goroutine for ever:
// what follows in etcd relies on it not to go on.
func (f *fatal) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(entry.Message)
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", entry.Message, cause)
		}
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w; nothing that was stored is lost: free some space and start it again", err)
	}
	f.report(err)
	f.once.Do(func() { close(f.happened) })
	select {}
}

// quiet drops what every new database logs once, before it has written anything
// from which its version could be told, and what is returned as an error.
type quiet struct{ zapcore.Core }

func (q quiet) With(fields []zapcore.Field) zapcore.Core { return quiet{q.Core.With(fields)} }

func (q quiet) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	switch {
	case e.Message == "failed to update storage version", e.Message == "bootstrap failed",
		e.Message == "failed to preallocate space when creating a new WAL":
		return ce
	case e.Level >= zapcore.PanicLevel, e.LoggerName == "bbolt": // the backend makes these fatal
		return ce
	}
	return q.Core.Check(e, ce)
}
