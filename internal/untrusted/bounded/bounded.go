// Package bounded reads answers of others no further than they may go.
package bounded

import (
	"fmt"
	"io"
)

// Body is a body that ends with an error where it has more than limit bytes. What was read before the error is not the
// whole of it.
func Body(of io.ReadCloser, limit int64) io.ReadCloser {
	return &body{ReadCloser: of, limit: limit, left: limit}
}

type body struct {
	io.ReadCloser
	limit, left int64
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.tooLarge()
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, b.tooLarge()
	}
	return n, err //nolint:wrapcheck // io.EOF must stay.
}

func (b *body) tooLarge() error { return fmt.Errorf("the answer has more than %d bytes", b.limit) }
