package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Line is the connection of one control loop to the API, as a transport for its
// client. It begins without faults.
type Line struct {
	next http.RoundTripper
	gate Gate
	// flaky makes writes fail, slow events late, stale watches be refused.
	flaky, slow, stale atomic.Bool
	// done counts what went wrong.
	done atomic.Int64

	mu      sync.Mutex
	dice    Dice
	watches map[*stream]struct{}
	writes  sync.WaitGroup
	refused string // the node whose pods are refused
	words   string // what is said about it
}

// NewLine returns a line over a transport.
func NewLine(next http.RoundTripper, dice Dice) *Line {
	return &Line{next: next, dice: dice, watches: map[*stream]struct{}{}}
}

// Pause lets nothing through in either direction, until Resume.
func (l *Line) Pause() { l.gate.Close() }

// Resume ends a pause.
func (l *Line) Resume() { l.gate.Open() }

// Flaky makes writes fail in all ways, or no more.
func (l *Line) Flaky(on bool) { l.flaky.Store(on) }

// Slow makes events late and mixes those of different objects, or no more.
func (l *Line) Slow(on bool) { l.slow.Store(on) }

// Refuse refuses each creation that names the node, with some words, until it is called with "".
func (l *Line) Refuse(node, words string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused, l.words = node, words
}

// refuses reports whether a request is a creation that names the refused node. A pod that is only tried is taken: what
// is refused then is tried again after a minute, for which no round lasts.
func (l *Line) refuses(req *http.Request) (bool, error) {
	l.mu.Lock()
	node := l.refused
	l.mu.Unlock()
	if node == "" || req.Method != http.MethodPost || req.Body == nil || req.URL.Query().Has("dryRun") {
		return false, nil
	}
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	req.Body = io.NopCloser(bytes.NewReader(body))
	return bytes.Contains(body, []byte(node)), err
}

// Faults is how often something went wrong so far.
func (l *Line) Faults() int { return int(l.done.Load()) }

// Heal ends all faults.
func (l *Line) Heal() {
	l.Flaky(false)
	l.Slow(false)
	l.stale.Store(false)
	l.Refuse("", "")
	l.Resume()
}

// Drop breaks all watches off. The client resumes them, unless they are stale:
// then the next one is answered that its start is too old.
func (l *Line) Drop(stale bool) {
	if stale {
		l.stale.Store(true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.watches {
		l.done.Add(1)
		_ = s.ReadCloser.Close()
	}
}

// Drain returns when each write that was sent has been done. Nobody may send any
// more.
func (l *Line) Drain() { l.writes.Wait() }

func (l *Line) roll(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dice.IntN(n)
}

// RoundTrip implements http.RoundTripper.
func (l *Line) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := l.gate.Wait(req.Context()); err != nil {
		return nil, err
	}
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return l.write(req)
	}
	if req.URL.Query().Get("watch") == "" {
		return l.read(req)
	}
	if l.stale.CompareAndSwap(true, false) {
		l.done.Add(1)
		return refuse(req, http.StatusGone, metav1.StatusReasonExpired), nil
	}
	res, err := l.next.RoundTrip(req)
	if err != nil || res.StatusCode != http.StatusOK {
		return res, err
	}
	s := &stream{ReadCloser: res.Body, line: l, ctx: req.Context()}
	l.mu.Lock()
	l.watches[s] = struct{}{}
	l.mu.Unlock()
	res.Body = s
	return res, nil
}

func (l *Line) read(req *http.Request) (*http.Response, error) {
	if l.flaky.Load() && l.roll(8) == 0 {
		l.done.Add(1)
		return refuse(req, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
	}
	res, err := l.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	return l.whole(req, res)
}

// errLost is what a client sees of a connection that broke.
var errLost = errors.New("connection lost")

func (l *Line) write(req *http.Request) (*http.Response, error) {
	switch no, err := l.refuses(req); {
	case err != nil:
		return nil, err
	case no:
		l.done.Add(1)
		l.mu.Lock()
		words := l.words
		l.mu.Unlock()
		return refuse(req, http.StatusForbidden, metav1.StatusReasonForbidden, words), nil
	}
	if !l.flaky.Load() {
		return l.send(req)
	}
	fault := l.roll(16)
	if fault <= 7 {
		l.done.Add(1)
	}
	switch {
	case fault == 0:
		return refuse(req, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
	case fault == 1:
		return refuse(req, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests), nil
	case fault == 2:
		return refuse(req, http.StatusGatewayTimeout, metav1.StatusReasonTimeout), nil
	case fault == 3 && req.Method == http.MethodPut:
		// A conflict there is only when somebody else was faster.
		if err := l.touch(req); err != nil {
			return nil, err
		}
	case fault == 6:
		if err := l.late(req.Context()); err != nil {
			return nil, err
		}
	}
	res, err := l.send(req)
	if err != nil {
		return nil, err
	}
	return l.answer(req, res, fault)
}

// answer hands over the answer to a write that was done: late, as another one, or
// not at all.
func (l *Line) answer(req *http.Request, res *http.Response, fault int) (*http.Response, error) {
	switch {
	case fault == 4 && res.StatusCode < http.StatusBadRequest:
		return refuse(req, http.StatusGatewayTimeout, metav1.StatusReasonTimeout), nil
	case fault == 5:
		return nil, errLost
	case fault == 7:
		return res, l.late(req.Context())
	}
	return res, nil
}

// touch changes the object that a request is about to replace.
func (l *Line) touch(req *http.Request) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, l.roll(1<<20))
	touch := req.Clone(req.Context())
	touch.Method, touch.Body = http.MethodPatch, io.NopCloser(strings.NewReader(patch))
	touch.ContentLength = int64(len(patch))
	touch.URL.Path = strings.TrimSuffix(touch.URL.Path, "/status")
	touch.Header.Set("Content-Type", "application/merge-patch+json")
	res, err := l.send(touch)
	if err == nil {
		_ = res.Body.Close()
	}
	return err
}

// send does the write to its end, whether or not anybody still waits for it.
func (l *Line) send(req *http.Request) (*http.Response, error) {
	l.writes.Add(1)
	defer l.writes.Done()
	res, err := l.next.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
	if err != nil {
		return nil, err
	}
	return l.whole(req, res)
}

// whole reads an answer to its end, and hands it over when the gate is open.
func (l *Line) whole(req *http.Request, res *http.Response) (*http.Response, error) {
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("read the answer to %s %s: %w", req.Method, req.URL.Path, err)
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if err := l.gate.Wait(req.Context()); err != nil {
		return nil, err
	}
	return res, nil
}

// late waits up to 400 ms.
func (l *Line) late(ctx context.Context) error {
	return sleep(ctx, time.Duration(l.roll(400))*time.Millisecond)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refuse is an answer that the API server could have given.
func refuse(req *http.Request, code int, reason metav1.StatusReason, words ...string) *http.Response {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: reason, Code: int32(code),
		Message: "a fault of the round: " + string(reason) + strings.Join(words, ""),
	})
	if err != nil {
		panic("faults: a status does not marshal: " + err.Error())
	}
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)), Request: req,
	}
}

// stream is a running watch.
type stream struct {
	io.ReadCloser
	line *Line
	ctx  context.Context //nolint:containedctx // Read has none; it is the request's.
}

// Read implements io.Reader. It hands over what came once the gate is open.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if waited := s.line.gate.Wait(s.ctx); waited != nil && err == nil {
		return 0, waited
	}
	if n > 0 && s.line.slow.Load() {
		if waited := sleep(s.ctx, time.Duration(s.line.roll(60))*time.Millisecond); waited != nil {
			return 0, waited
		}
	}
	return n, err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.line.mu.Lock()
	delete(s.line.watches, s)
	s.line.mu.Unlock()
	return s.ReadCloser.Close()
}
