package scrape

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
)

// family is a metric's name, with what it tells and its labels, in order.
type family struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
}

// sink holds the metrics of one answer. A page of a hundred pods has thousands of lines, every few seconds: of each
// only its values are kept, and the text is made while it is sent.
type sink struct {
	families map[string]*rows
}

// rows are the values of a family.
type rows struct {
	family
	list []row
}

// row is a value with its labels, as they are written; at is when it was measured, in milliseconds, 0 for now.
type row struct {
	labels string
	value  float64
	at     int64
}

// labelText is how labels with such names are written.
func labelText(names []string, values ...string) string {
	if len(names) == 0 {
		return ""
	}
	var text []byte
	for i, name := range names {
		before := byte(',')
		if i == 0 {
			before = '{'
		}
		text = append(append(append(text, before), name...), `="`...)
		text = append(appendEscaped(text, values[i]), '"')
	}
	return string(append(text, '}'))
}

// add adds a value of the family; at is when it was measured, zero for now.
func (s *sink) add(f family, value float64, at time.Time, labels ...string) {
	s.addRow(f, value, at, labelText(f.labels, labels...))
}

// addRow is add for labels that several values share.
func (s *sink) addRow(f family, value float64, at time.Time, labels string) {
	if s.families == nil {
		s.families = map[string]*rows{}
	}
	known := s.families[f.name]
	if known == nil {
		known = &rows{family: f}
		s.families[f.name] = known
	}
	r := row{labels: labels, value: value}
	if !at.IsZero() {
		r.at = at.UnixMilli()
	}
	known.list = append(known.list, r)
}

// write writes the family in the text that programs scrape.
func (r *rows) write(out *bufio.Writer) error {
	kind := "gauge"
	if r.kind == prometheus.CounterValue {
		kind = "counter"
	}
	if _, err := fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", r.name, r.help, r.name, kind); err != nil {
		return err
	}
	var line []byte
	for _, row := range r.list {
		line = append(append(line[:0], r.name...), row.labels...)
		line = strconv.AppendFloat(append(line, ' '), row.value, 'g', -1, 64)
		if row.at != 0 {
			line = strconv.AppendInt(append(line, ' '), row.at, 10)
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// appendEscaped appends the value of a label. One that is no UTF-8, such as the name of an interface that a pod made,
// would have whoever scrapes the page take nothing of it.
func appendEscaped(text []byte, value string) []byte {
	value = strings.ToValidUTF8(value, "\uFFFD")
	if !strings.ContainsAny(value, "\\\"\n") {
		return append(text, value...)
	}
	return append(text, escaper.Replace(value)...)
}

var escaper = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

// serve sends the metrics, the families in the order of their names.
func (s *sink) serve(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	out := io.Writer(w)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		// A compressor that remembers more is larger than all that the page is made of.
		compressor, err := gzip.NewWriterLevel(w, gzip.StatelessCompression)
		if err != nil {
			return fmt.Errorf("compress the metrics: %w", err)
		}
		defer func() { _ = compressor.Close() }() // a caller who is gone is no concern of ours
		out = compressor
	}
	text := bufio.NewWriterSize(out, 32<<10)
	for _, name := range slices.Sorted(maps.Keys(s.families)) {
		if err := s.families[name].write(text); err != nil {
			return err
		}
	}
	return text.Flush()
}
