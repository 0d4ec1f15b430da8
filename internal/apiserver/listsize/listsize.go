// Package listsize remembers in which namespaces a list of a kind is long. Nothing counts the
// objects of a namespace, but who has just been answered shows how many there are.
package listsize

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// long is from how many bytes on a list is long; it is that of some thousand pods.
	long = 4 << 20
	// compression is how many times smaller a compressed list is at least, roughly.
	compression = 8
)

type key struct {
	of        schema.GroupResource
	namespace string
}

// Sizes knows the long lists. It is safe for several goroutines.
type Sizes struct {
	mu   sync.RWMutex
	long map[key]bool
}

// New makes one that knows of none.
func New() *Sizes { return &Sizes{long: map[key]bool{}} }

// IsLong reports whether the last list of a kind in a namespace was long.
func (s *Sizes) IsLong(of schema.GroupResource, namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.long[key{of, namespace}]
}

// Note takes down how long a list was. One that failed or was left early says
// nothing, unless it was long already.
func (s *Sizes) Note(of schema.GroupResource, namespace string, answer *Writer) {
	size := answer.size
	if answer.Header().Get("Content-Encoding") == "gzip" {
		size *= compression
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch k := (key{of, namespace}); {
	case size >= long:
		s.long[k] = true
	case answer.whole():
		delete(s.long, k)
	}
}

// Writer counts the bytes of an answer. It is for one goroutine.
type Writer struct {
	http.ResponseWriter
	size   int
	code   int
	failed bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.size += n
	w.failed = w.failed || err != nil
	return n, err //nolint:wrapcheck // The client's connection's own.
}

func (w *Writer) whole() bool { return !w.failed && (w.code == 0 || w.code == http.StatusOK) }
