package nodestatus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// seldom has what runs with the context log each message when it says something else, and every few minutes. The
// library that renews the lease logs every try: a node that is alone for ten days would fill its log.
func seldom(ctx context.Context, clk clock.PassiveClock) context.Context {
	logger := klog.FromContext(ctx).WithCallDepth(1)
	said := &said{clock: clk, last: map[string]line{}}
	return klog.NewContext(ctx, logger.WithSink(seldomSink{logger.GetSink(), said}))
}

// said is what was logged last with each message. Who logs has a fixed number of these.
type said struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	last  map[string]line
}

type line struct {
	text string
	at   time.Time
}

// fresh notes down a line, and reports whether it is worth saying.
func (s *said) fresh(message, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if last, ok := s.last[message]; ok && last.text == text && now.Sub(last.at) < reportEvery {
		return false
	}
	s.last[message] = line{text, now}
	return true
}

// seldomSink passes on what is worth saying.
type seldomSink struct {
	logr.LogSink
	said *said
}

func (s seldomSink) Info(level int, message string, values ...any) {
	if s.said.fresh(message, fmt.Sprint(values...)) {
		s.LogSink.Info(level, message, values...)
	}
}

func (s seldomSink) Error(err error, message string, values ...any) {
	if s.said.fresh(message, fmt.Sprint(err)) {
		s.LogSink.Error(err, message, values...)
	}
}

func (s seldomSink) WithValues(values ...any) logr.LogSink {
	return seldomSink{s.LogSink.WithValues(values...), s.said}
}

func (s seldomSink) WithName(name string) logr.LogSink {
	return seldomSink{s.LogSink.WithName(name), s.said}
}
