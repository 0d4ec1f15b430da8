// Package secrecy looks for values that nobody is to be shown.
package secrecy

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"
)

// Hides fails the test if a text holds one of the values, as it is or encoded, or if there is no text. Values have no
// less than eight bytes.
func Hides(t testing.TB, where string, text []byte, values ...string) {
	t.Helper()
	if len(text) == 0 {
		t.Errorf("%s is empty", where)
	}
	for _, value := range values {
		for _, form := range forms(value) {
			if at := bytes.Index(text, []byte(form)); at >= 0 {
				t.Errorf("%s holds a Secret's value: ...%s", where, text[max(0, at-200):at])
				return
			}
		}
	}
}

// forms are the value, and what it is encoded.
func forms(value string) []string {
	out := []string{value, hex.EncodeToString([]byte(value)), url.QueryEscape(value)}
	for shift := range 3 { // base64 looks different by where it begins
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + value))
		out = append(out, encoded[4:len(encoded)-4])
	}
	return out
}
