package backends

import (
	"cmp"
	"fmt"
	"sync"
	"time"
)

// limit is what one document may have. Values are counted as well as bytes, since a few
// bytes of JSON become hundreds when they are read into objects.
type limit struct{ bytes, values int64 }

// The documents of servers. The largest that are known, of a whole Kubernetes, have
// 4 MiB and a hundred thousand values in OpenAPI, and in discovery 200 KiB and five thousand.
var (
	discoveryLimit = limit{2 << 20, 20_000}
	openAPILimit   = limit{8 << 20, 200_000}
	indexLimit     = limit{256 << 10, 10_000}
)

const (
	// valueCost is about what a value takes when it has been read.
	valueCost = 300
	// allDocuments is what all documents of all servers may take that are kept, and
	// allHanded what those may that are on their way to clients: who asks for many at a
	// time, and reads them slowly, must not take the room of those that are kept.
	allDocuments = 256 << 20
	allHanded    = 128 << 20
	// headerLimit is for the header of an answer.
	headerLimit = 64 << 10
	// documentPatience is how long a document may take, from the question to its last byte.
	documentPatience = 15 * time.Second
	// answerPatience is how long a server may take to say that it is there.
	answerPatience = 5 * time.Second
)

// ledger keeps account of what documents take. What they are, and how much all may take,
// is for the error; nothing is for those that are kept.
type ledger struct {
	what string
	all  int64

	mu   sync.Mutex
	left int64
}

// take is false if there is not so much left.
func (l *ledger) take(n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > l.left {
		return false
	}
	l.left -= n
	return true
}

func (l *ledger) give(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left += n
}

// account is what one document has taken from the ledger.
type account struct {
	of    *ledger
	taken int64
}

func (a *account) take(n int64) error {
	if !a.of.take(n) {
		return fmt.Errorf(
			"%s API servers behind APIServices together take more than %d bytes",
			cmp.Or(a.of.what, "the documents of all"), cmp.Or(a.of.all, allDocuments),
		)
	}
	a.taken += n
	return nil
}

// close gives everything back.
func (a *account) close() {
	a.of.give(a.taken)
	a.taken = 0
}

// counter counts the values of JSON that comes in parts: what is between brackets,
// commas and colons. It counts something for any bytes, also for those that are no JSON.
type counter struct {
	values           int64
	inString, escape bool
}

func (c *counter) add(part []byte) {
	for _, b := range part {
		switch {
		case c.escape:
			c.escape = false
		case c.inString:
			c.escape = b == '\\'
			c.inString = b != '"'
		default:
			switch b {
			case '"':
				c.inString = true
			case '{', '[', ',', ':':
				c.values++
			}
		}
	}
}
