// Package inprocess is the way of the parts of this process to the API: without a socket, under accounts of their
// own, and through the same filters as everybody else's requests.
package inprocess

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/everynode/everynode/internal/storage/members"
)

type key struct{}

// Is reports whether a request is one that the server's own parts make.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }

// Transport is a transport that calls the server's own handler, so that the
// parts of the control plane need no socket and no TLS to reach it. The whole
// chain of filters (authentication, authorization, admission) still applies.
type Transport struct {
	handler http.Handler
	serving chan struct{}
	// others says which paths lead to servers of others, whose answers may be endless.
	others func(path string) bool
}

// NewTransport returns a transport whose requests wait until Serve is called. Of the paths that lead to servers of
// others it bounds the answers.
func NewTransport(others func(path string) bool) *Transport {
	return &Transport{serving: make(chan struct{}), others: others}
}

// Serve sets the handler, once; requests before that wait for it.
func (t *Transport) Serve(h http.Handler) {
	t.handler = h
	close(t.serving)
}

// RoundTrip implements http.RoundTripper. It returns when the handler has sent
// its header; the body streams.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-t.serving:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	ctx := context.WithValue(detached{req.Context()}, key{}, true)
	in := req.Clone(members.InTurn(ctx, members.TurnOf(req.Context())))
	in.RequestURI = req.URL.RequestURI()
	in.Host = req.URL.Host
	in.RemoteAddr = "127.0.0.1:0"
	in.Proto, in.ProtoMajor, in.ProtoMinor = "HTTP/2.0", 2, 0
	if in.Body == nil {
		in.Body = http.NoBody
	}
	reader, writer := io.Pipe()
	w := &pipeWriter{header: http.Header{}, body: writer, started: make(chan struct{})}
	go func() {
		defer func() {
			if p := recover(); p != nil && !aborted(p) {
				w.fail(fmt.Errorf("the API server's handler panicked: %v", p))
				return
			} else if p != nil {
				w.fail(io.ErrUnexpectedEOF)
				return
			}
			w.WriteHeader(http.StatusOK)
			_ = writer.Close()
		}()
		t.handler.ServeHTTP(w, in)
	}()
	select {
	case <-w.started:
	case <-req.Context().Done():
		_ = reader.CloseWithError(req.Context().Err())
		return nil, req.Context().Err()
	}
	if w.err != nil {
		return nil, w.err
	}
	response := &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: in.Proto, ProtoMajor: 2,
		Header: w.sent, Body: &pipeBody{PipeReader: reader}, ContentLength: -1, Request: req,
	}
	if t.others(req.URL.Path) {
		boundedReads(response)
	}
	return response, nil
}

// aborted reports whether a handler panicked to end its request.
func aborted(p any) bool {
	err, ok := p.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// detached keeps a context's end and drops its values: a request that is made
// while another is served must not take over that one's user or audit record. Only the turn in
// which it is made is passed on.
type detached struct {
	context.Context //nolint:containedctx // it is a context
}

// Value implements context.Context.
func (detached) Value(any) any { return nil }

// pipeBody unblocks the handler's writes when the client stops reading.
type pipeBody struct{ *io.PipeReader }

func (b *pipeBody) Close() error { return b.CloseWithError(io.ErrClosedPipe) }

// pipeWriter is the response of one in-process request.
type pipeWriter struct {
	header, sent http.Header
	body         *io.PipeWriter
	once         sync.Once
	started      chan struct{}
	status       int
	err          error
}

var _ http.Flusher = (*pipeWriter)(nil)

// Header implements http.ResponseWriter.
func (w *pipeWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter; only the first call counts.
func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.started)
	})
}

// Write implements io.Writer.
func (w *pipeWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush implements http.Flusher; nothing is buffered.
func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }

// CloseNotify implements the deprecated interface that the filters still ask for.
func (w *pipeWriter) CloseNotify() <-chan bool { return make(chan bool) }

// Hijack is refused: connections that change protocol need the network.
func (w *pipeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errors.New("an in-process request cannot be upgraded")
}

func (w *pipeWriter) fail(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.started)
	})
	_ = w.body.CloseWithError(err)
}
