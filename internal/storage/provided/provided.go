// Package provided has a write succeed only while another object is the version that its writer has seen.
//
//	registry: decides by the other object -> Still -> storage: one transaction compares both, and writes
//
// The database compares, in the transaction of the write: nothing can come between, however many servers there are and
// however old what the writer has seen is. A write that is refused for it fails with an error that has the method
// Changed() string, which returns the key.
package provided

import "context"

// Condition is what the writes of a context depend on. A write is decided and done by one goroutine.
type Condition struct {
	key     string
	version uint64
}

type conditionKey struct{}

// While returns a context whose writes depend on what the condition is told, which may be as late as the write itself
// is decided.
func While(ctx context.Context) (context.Context, *Condition) {
	c := &Condition{}
	return context.WithValue(ctx, conditionKey{}, c), c
}

// Still has the writes depend on the object at a key, as the API's storages know it, being that version.
func (c *Condition) Still(key string, version uint64) { c.key, c.version = key, version }

// Of is what the writes of a context depend on; false for nothing.
func Of(ctx context.Context) (key string, version uint64, depends bool) {
	c, _ := ctx.Value(conditionKey{}).(*Condition)
	if c == nil || c.key == "" {
		return "", 0, false
	}
	return c.key, c.version, true
}
