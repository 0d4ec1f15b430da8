// Package buffer takes what many goroutines write.
package buffer

import (
	"bytes"
	"sync"
)

// Shared is safe for concurrent use. The zero value is empty.
type Shared struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer.
func (b *Shared) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

// Bytes is a copy of all that was written.
func (b *Shared) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buffer.Bytes())
}
