// Package compiled keeps what compiling a text gave, so that the same expression in thousands of objects is compiled
// once.
package compiled

import (
	"sync"

	"k8s.io/utils/lru"
)

// Cache knows what some texts were compiled to. What fails is not kept: it is stored nowhere, and its error may be
// long.
type Cache[K comparable, T any] struct {
	mu    sync.Mutex
	known *lru.Cache // func() (T, error) by K
}

// New returns a cache of at most so many results.
func New[K comparable, T any](most int) *Cache[K, T] {
	return &Cache[K, T]{known: lru.New(most)}
}

// Get compiles what is not known. The key names all that the result depends on. Who asks for the same at the same time
// waits for the one who compiles.
func (c *Cache[K, T]) Get(key K, compile func() (T, error)) (T, error) {
	result := c.entry(key, compile)
	ok := false
	defer func() {
		if !ok {
			c.mu.Lock()
			c.known.Remove(key)
			c.mu.Unlock()
		}
	}()
	is, err := result()
	ok = err == nil
	return is, err
}

func (c *Cache[K, T]) entry(key K, compile func() (T, error)) func() (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, is := c.known.Get(key); is {
		return known.(func() (T, error))
	}
	result := sync.OnceValues(compile)
	c.known.Add(key, result)
	return result
}
