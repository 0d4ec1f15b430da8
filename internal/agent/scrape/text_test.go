package scrape

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The text is as Prometheus' own library writes it: families in order, each with what describes it once, values escaped.
func TestText(t *testing.T) {
	s := &sink{}
	counted := family{"b_total", "What is counted.", prometheus.CounterValue, []string{"id", "pod"}}
	s.add(counted, 1.5e10, time.UnixMilli(1234), "/a", "p")
	s.add(family{"a", "All.", prometheus.GaugeValue, nil}, 0, time.Time{})
	s.add(counted, 0.25, time.Time{}, "a\"b\\c\nd", "")
	const want = `# HELP a All.
# TYPE a gauge
a 0
# HELP b_total What is counted.
# TYPE b_total counter
b_total{id="/a",pod="p"} 1.5e+10 1234
b_total{id="a\"b\\c\nd",pod=""} 0.25
`
	for _, encoding := range []string{"", "gzip", "deflate, gzip;q=1.0"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", encoding)
		if err := s.serve(w, r); err != nil {
			t.Fatal(err)
		}
		var body io.Reader = w.Body
		if encoding != "" {
			unpacked, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = unpacked
		}
		got, err := io.ReadAll(body)
		if err != nil || string(got) != want || w.Header().Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("asked for %q: %v, %v\n%s", encoding, err, w.Header(), got)
		}
	}
}

// A page of many pods is compressed in parts, and is what it was.
func TestLongText(t *testing.T) {
	s := &sink{}
	f := family{"a", "All.", prometheus.GaugeValue, []string{"id"}}
	for i := range 20_000 {
		s.add(f, float64(i)*1.25, time.UnixMilli(int64(i)), strconv.Itoa(i))
	}
	page := func(encoding string) *bytes.Buffer {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", encoding)
		if err := s.serve(w, r); err != nil {
			t.Fatal(err)
		}
		return w.Body
	}
	want, packed := page(""), page("gzip")
	if packed.Len() > want.Len()/2 {
		t.Errorf("%d bytes are compressed to %d", want.Len(), packed.Len())
	}
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(unpacked); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes are unpacked to %d: %v", want.Len(), len(got), err)
	}
}
