package secrecy

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"testing"
)

// failures counts what a test would have failed of.
type failures struct {
	testing.TB
	all []string
}

func (f *failures) Helper()                        {}
func (f *failures) Errorf(format string, a ...any) { f.all = append(f.all, fmt.Sprintf(format, a...)) }

func TestHides(t *testing.T) {
	const value = "a secret / value"
	for text, found := range map[string]int{
		"nothing to see": 0, "": 1, "it is a secret / value!": 1, "q=a+secret+%2F+value": 1,
		hex.EncodeToString([]byte("=" + value)):                       1,
		base64.StdEncoding.EncodeToString([]byte(value)):              1,
		base64.StdEncoding.EncodeToString([]byte("a" + value)):        1,
		base64.StdEncoding.EncodeToString([]byte("ab" + value + "c")): 1,
		base64.StdEncoding.EncodeToString([]byte("another value")):    0,
	} {
		f := &failures{}
		Hides(f, "the text", []byte(text), "other-value", value)
		if len(f.all) != found {
			t.Errorf("of %q it says %q, want %d words", text, f.all, found)
		}
	}
}
