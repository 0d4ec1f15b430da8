package inprocess

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/everynode/everynode/internal/untrusted/bounded"
)

// What the control loops, and the admission policies, read of an answer of a server of
// others: so much at once, and so much for each event of a watch. Clients of the network
// read for themselves.
const (
	readLimit  = 64 << 20
	eventLimit = 4 << 20
)

// boundedReads ends an answer with an error where it is too large. Events in protobuf
// say how long they are, and the library takes none that is too long.
func boundedReads(r *http.Response) {
	switch watch := r.Request.URL.Query().Get("watch"); {
	case watch != "true" && watch != "1":
		r.Body = bounded.Body(r.Body, readLimit)
	case !strings.Contains(r.Header.Get("Content-Type"), "protobuf"):
		r.Body = &boundedEvents{ReadCloser: r.Body}
	}
}

// boundedEvents ends a watch with an error if an event has no end.
type boundedEvents struct {
	io.ReadCloser
	depth, size      int
	inString, escape bool
}

var errEvent = errors.New("an event of the watch has no end")

// Read implements io.Reader.
func (b *boundedEvents) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		b.size++
		switch {
		case b.escape:
			b.escape = false
		case b.inString:
			b.escape, b.inString = c == '\\', c != '"'
		case c == '"':
			b.inString = true
		case c == '{' || c == '[':
			b.depth++
		case c == '}' || c == ']':
			b.depth--
		}
		if b.depth <= 0 && !b.inString {
			b.depth, b.size = 0, 0
		}
		if b.size > eventLimit {
			return 0, fmt.Errorf("%w: it has more than %d bytes", errEvent, eventLimit)
		}
	}
	return n, err
}
