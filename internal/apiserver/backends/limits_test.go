package backends

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// endless repeats words for ever.
type endless struct {
	words string
	at    int
	given int64
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.words[e.at%len(e.words)]
		e.at++
	}
	e.given += int64(len(p))
	return len(p), nil
}

func TestReadUpToTheLimit(t *testing.T) {
	small := limit{bytes: 100_000, values: 1000}
	for name, c := range map[string]struct {
		from io.Reader
		left int64
		want string
	}{
		"all of it":                {strings.NewReader(`{"a":[1,2,3]}`), 1 << 30, ""},
		"to the last byte":         {strings.NewReader(strings.Repeat("x", 100_000)), 1 << 30, ""},
		"a byte too many":          {strings.NewReader(strings.Repeat("x", 100_001)), 1 << 30, "more than 100000 bytes"},
		"one byte after the other": {iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 100_001))), 1 << 30, "more than 100000 bytes"},
		"to the last value":        {strings.NewReader(strings.Repeat(",", 1000)), 1 << 30, ""},
		"a value too many":         {strings.NewReader(strings.Repeat(",", 1001)), 1 << 30, "more than 1000 values"},
		"values that are words":    {strings.NewReader(`"` + strings.Repeat(",", 2000) + `"`), 1 << 30, ""},
		"more than all may":        {strings.NewReader(strings.Repeat("x", 50_000)), 40_000, "the documents of all API servers"},
		"values more than all may": {strings.NewReader(strings.Repeat(",", 500)), 40_000, "the documents of all API servers"},
		"an end that is no end":    {iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("xxxxx"))), 1 << 30, "timeout"},
		"bytes without an end":     {&endless{words: "x"}, 1 << 30, "more than 100000 bytes"},
		"values without an end":    {&endless{words: `{"a":`}, 1 << 30, "more than 1000 values"},
		"a string without an end":  {io.MultiReader(strings.NewReader(`"`), &endless{words: `\"`}), 1 << 30, "more than 100000 bytes"},
	} {
		l := &ledger{left: c.left}
		held := &account{of: l}
		body, err := read(c.from, small, held)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil && held.taken < int64(len(body)) {
			t.Errorf("%s: %d bytes cost %d", name, len(body), held.taken)
		}
		if e, ok := c.from.(*endless); ok && e.given > 200_000 {
			t.Errorf("%s: %d bytes were read", name, e.given)
		}
		held.close()
		if l.left != c.left {
			t.Errorf("%s: of %d there is left %d", name, c.left, l.left)
		}
	}
}

// TestValuesAreCounted compares with what a decoder finds: each value but the first has
// something before it.
func TestValuesAreCounted(t *testing.T) {
	for _, words := range []string{`{}`, `[]`, `"x"`, `[1,2,"a,b",{"c":"\"{[,:","d":[null]}]`, `{"a":{"b":{"c":[[],[],{}]}}}`, `["\\",1,"\\\"",2]`} {
		var counted counter
		counted.add([]byte(words))
		apart := counter{}
		for i := range len(words) {
			apart.add([]byte(words[i : i+1]))
		}
		found := int64(0)
		decoder := json.NewDecoder(bytes.NewReader([]byte(words)))
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if token != json.Delim('}') && token != json.Delim(']') {
				found++
			}
		}
		if counted.values != apart.values || counted.values < found-1 || counted.values > 2*found {
			t.Errorf("%s has %d words, and %d are counted, or %d in parts", words, found, counted.values, apart.values)
		}
	}
}
