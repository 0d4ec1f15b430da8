// Package plaintext makes harmless what others wrote and we show: in a terminal, where
// control characters move the cursor, hide text or change the window, and in a log, where
// a line break forges a line. Text that is only text comes out as it went in.
package plaintext

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape spells out what is no text: control characters, characters that turn the order
// of writing, and bytes that are no UTF-8. Line breaks and tabs stay.
func Escape(s string) string {
	if !strings.ContainsFunc(s, isHarmful) && utf8.ValidString(s) {
		return s
	}
	var out strings.Builder
	out.Grow(len(s) + len(s)/8)
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case !isHarmful(r):
			out.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&out, `\x%02x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// Line does the same with what must stay one line.
func Line(s string) string {
	return strings.ReplaceAll(Escape(s), "\n", `\n`)
}

// isHarmful are characters that do something instead of being seen. Unicode calls those
// that turn the order of writing, or cannot be seen, formats.
func isHarmful(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// Texts returns a writer of whole texts: none ends within a character.
func Texts(w io.Writer) io.Writer { return writer{w, Escape} }

// Entries returns a writer of a log that gets each entry by a Write of its own. Only the
// beginning of an entry stands at the beginning of a line.
func Entries(w io.Writer) io.Writer {
	return writer{w, func(entry string) string {
		body, end := strings.CutSuffix(Escape(entry), "\n")
		body = strings.ReplaceAll(body, "\n", "\n\t")
		if end {
			body += "\n"
		}
		return body
	}}
}

type writer struct {
	to     io.Writer
	change func(string) string
}

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	if err := copyAll(w.to, w.change(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func copyAll(w io.Writer, text string) error {
	_, err := io.Copy(w, bytes.NewReader([]byte(text)))
	return err
}
