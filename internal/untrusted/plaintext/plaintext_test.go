package plaintext

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"plain, ünïcödé, 日本, 🙂":          "plain, ünïcödé, 日本, 🙂",
		"two\nlines\tand a tab":          "two\nlines\tand a tab",
		"\x1b[2J\x1b]0;title\x07":        `\x1b[2J\x1b]0;title\x07`,
		"over\rwritten, back\b":          `over\x0dwritten, back\x08`,
		"one byte starts it: \u009b31m":  `one byte starts it: \u009b31m`,
		"and as a byte: \x9b31m":         `and as a byte: \x9b31m`,
		"no UTF-8: \xff\xc3":             `no UTF-8: \xff\xc3`,
		"turned: \u202egnp.exe":          `turned: \u202egnp.exe`,
		"hidden: a\u200bb\ufeff":         `hidden: a\u200bb\ufeff`,
		"lines of others: \u2028\u2029x": `lines of others: \u2028\u2029x`,
		"a real \ufffd":                  "a real \ufffd",
		"\x00":                           `\x00`,
	} {
		if got := Escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Line("a\nb"); got != `a\nb` {
		t.Errorf("one line: %q", got)
	}
}

// No entry of a log has a second beginning of a line.
func TestEntriesForgeNoLine(t *testing.T) {
	var log bytes.Buffer
	w := Entries(&log)
	for _, entry := range []string{
		"I1122 08:00:00.000000       1 real.go:1] \"Probe failed\" output=<\n\tone\n >\n",
		"E1122 08:00:01.000000       1 real.go:2] said: x\nE1122 08:00:01.000000       1 forged.go:1] \"Administrator logged in\"\n\r\x1b[A\n",
		"no end",
	} {
		if n, err := w.Write([]byte(entry)); err != nil || n != len(entry) {
			t.Fatalf("%d, %v", n, err)
		}
	}
	beginnings := 0
	for line := range strings.SplitSeq(log.String(), "\n") {
		if line != "" && line[0] != '\t' {
			beginnings++
		}
	}
	if beginnings != 3 || strings.ContainsAny(log.String(), "\r\x1b") {
		t.Errorf("three entries are\n%s", log.String())
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("\x1b[0m\xff\u202e\n\t")
	f.Fuzz(func(t *testing.T, text string) {
		got := Escape(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, isHarmful) {
			t.Errorf("%q: %q", text, got)
		}
		if Escape(got) != got {
			t.Errorf("%q is escaped twice: %q", text, Escape(got))
		}
	})
}
