package streaming

import (
	"net/url"
	"testing"
	"time"
)

// FuzzQueries reads the parameters of logs, exec and port-forward: what is let
// through is within its limits.
func FuzzQueries(f *testing.F) {
	for _, query := range []string{
		"", "follow=true&tailLines=10&limitBytes=1&timestamps=1&previous", "sinceSeconds=1", "sinceSeconds=9223372036854775807", "sinceTime=2026-01-01T00:00:00Z", "tailLines=-1&limitBytes=0",
		"stream=Stdout", "stdin=1&stdout=true&stderr&tty=1", "input=0&output=x", "port=80&port=0&ports=65535", "port=65536", "%zz", "a=%00",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, _ := url.ParseQuery(query) // what it could read
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if q, err := parseLogQuery(values, now); err == nil {
			o := q.options
			if o.Tail != nil && *o.Tail < 0 || o.Limit != nil && *o.Limit < 1 || !q.stdout && !q.stderr {
				t.Errorf("%q: logs with %+v", query, q)
			}
			if values.Has("sinceSeconds") && o.Since.After(now) {
				t.Errorf("%q: logs since %v, which is yet to come", query, o.Since)
			}
		}
		if s, err := parseStreams(values); err == nil && (!s.Stdin && !s.Stdout && !s.Stderr && !s.TTY || s.TTY && s.Stderr) {
			t.Errorf("%q: streams %+v", query, s)
		}
		if ports, err := parsePorts(values); err == nil {
			for _, port := range ports {
				if port < 1 || port > 65535 {
					t.Errorf("%q: port %d", query, port)
				}
			}
		}
	})
}
