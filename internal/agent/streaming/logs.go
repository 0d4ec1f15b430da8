package streaming

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/agent/streaming/containerlog"
)

// logQuery is what a request for logs asks for.
type logQuery struct {
	options          containerlog.Options
	follow, previous bool
	stdout, stderr   bool
}

// logs answers /containerLogs.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	query, err := parseLogQuery(r.URL.Query(), time.Now())
	if err != nil {
		writeError(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	container, err := s.cfg.Lookup.Container(
		r.Context(), r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), query.previous,
	)
	if err != nil {
		writeError(w, r, err)
		return
	}
	out := &answer{w: w, flush: query.follow}
	if query.follow {
		query.options.Running = func(ctx context.Context) (bool, error) { return s.cfg.Runtime.Running(ctx, container.ID) }
		// Callers may wait for the answer's head before the container says anything.
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		out.send()
	}
	var stdout, stderr io.Writer
	if query.stdout {
		stdout = out
	}
	if query.stderr {
		stderr = out
	}
	err = containerlog.Read(r.Context(), container.LogRoot, container.LogPath, query.options, stdout, stderr)
	if err != nil && r.Context().Err() == nil {
		if out.begun || query.follow {
			writeText(w, err.Error()+"\n")
			return
		}
		writeError(w, r, err)
	}
}

// answer is the body of an answer that may be sent piece by piece.
type answer struct {
	w     http.ResponseWriter
	flush bool
	begun bool
}

// Write implements io.Writer.
func (a *answer) Write(p []byte) (int, error) {
	a.begun = true
	n, err := a.w.Write(p)
	if a.flush {
		a.send()
	}
	return n, err
}

// send sends what was written so far. A failure shows at the next write.
func (a *answer) send() { _ = http.NewResponseController(a.w).Flush() }

// parseLogQuery reads the options of a request for logs.
func parseLogQuery(values url.Values, now time.Time) (logQuery, error) {
	p := queryParser{values: values}
	q := logQuery{
		follow: p.flag("follow"), previous: p.flag("previous"), stdout: true, stderr: true,
		options: containerlog.Options{
			Tail:       p.number("tailLines"),
			Limit:      p.number("limitBytes"),
			Timestamps: p.flag("timestamps"),
		},
	}
	seconds, since := p.number("sinceSeconds"), p.time("sinceTime")
	switch stream := values.Get("stream"); stream {
	case "", corev1.LogStreamAll:
	case corev1.LogStreamStdout:
		q.stderr = false
	case corev1.LogStreamStderr:
		q.stdout = false
	default:
		p.fail("stream", `must be "All", "Stdout" or "Stderr"`)
	}
	switch {
	case p.err != nil:
		return logQuery{}, p.err
	case seconds != nil && !since.IsZero():
		return logQuery{}, &queryError{"sinceTime", "at most one of sinceTime or sinceSeconds may be specified"}
	case seconds != nil && *seconds < 1:
		return logQuery{}, &queryError{"sinceSeconds", "must be greater than 0"}
	case q.options.Tail != nil && *q.options.Tail < 0:
		return logQuery{}, &queryError{"tailLines", "must be greater than or equal to 0"}
	case q.options.Limit != nil && *q.options.Limit < 1:
		return logQuery{}, &queryError{"limitBytes", "must be greater than 0"}
	}
	q.options.Since = since
	if seconds != nil {
		// A duration holds 292 years; logs are not that old.
		q.options.Since = now.Add(-time.Duration(min(*seconds, int64(math.MaxInt64/time.Second))) * time.Second)
	}
	return q, nil
}

// queryError names the parameter that is wrong.
type queryError struct{ name, problem string }

// Error implements error.
func (e *queryError) Error() string { return e.name + ": " + e.problem }

// queryParser reads parameters and keeps the first error.
type queryParser struct {
	values url.Values
	err    error
}

func (p *queryParser) fail(name, problem string) {
	if p.err == nil {
		p.err = &queryError{name, problem}
	}
}

// flag reads a truth value; a parameter without a value is true, as 1 is.
func (p *queryParser) flag(name string) bool {
	list, ok := p.values[name]
	if !ok || len(list) == 0 {
		return false
	}
	if list[0] == "" {
		return true
	}
	value, err := strconv.ParseBool(list[0])
	if err != nil {
		p.fail(name, "must be true or false")
	}
	return value
}

func (p *queryParser) number(name string) *int64 {
	text := p.values.Get(name)
	if text == "" {
		return nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.fail(name, "must be a number")
	}
	return &value
}

func (p *queryParser) time(name string) time.Time {
	text := p.values.Get(name)
	if text == "" {
		return time.Time{}
	}
	value, err := time.Parse(time.RFC3339, text)
	if err != nil {
		p.fail(name, "must be a time like 2006-01-02T15:04:05Z")
	}
	return value
}
