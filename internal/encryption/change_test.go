package encryption

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/encryption/plan"
)

// lateWriter is a control plane in which the last write with the old key lands after
// the first question and before the second, whatever is asked.
type lateWriter struct {
	file, hash string
	asked      int
}

func (l *lateWriter) landed() bool {
	l.asked++
	return l.asked > 1
}

// Status implements Servers.
func (l *lateWriter) Status(context.Context) (Status, error) {
	stored := map[string]int{SecretBox + "key-2": 1}
	if l.landed() {
		stored[SecretBox+"key-1"] = 1
	}
	return Status{File: l.file, Hash: l.hash, Resources: []Resource{{Name: "secrets", Writes: SecretBox + "key-2", Stored: stored}}}, nil
}

// Following implements Servers.
func (l *lateWriter) Following(context.Context, string) ([]plan.Server, error) {
	return []plan.Server{{Name: "a", Follows: true, Settled: l.landed()}}, nil
}

// Rewrite implements Servers.
func (l *lateWriter) Rewrite(context.Context) (Rewritten, error) { return Rewritten{Rewritten: 1}, nil }

// The old key stays as long as something may be stored with it that was written after
// the counting began.
func TestKeyOfAWriteThatLandsLateIsKept(t *testing.T) {
	dir := t.TempDir()
	content, err := Write(File(dir), keysOf(t, "key-2", "key-1"))
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	c := Change{DataDir: dir, Out: io.Discard, Patience: time.Minute, Servers: &lateWriter{file: File(dir), hash: Hash(content)},
		After: func(k plan.Kind) error {
			if k != plan.Rewrite {
				t.Errorf("the next step is %s, while a Secret is stored with the old key", k)
			}
			return enough
		}}
	if err := c.Run(t.Context()); !errors.Is(err, enough) {
		t.Error(err)
	}
}
