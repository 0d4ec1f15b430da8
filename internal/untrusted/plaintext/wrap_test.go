package plaintext

import (
	"slices"
	"testing"
)

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"":                            {"- "},
		"a word":                      {"- a word"},
		"just so wide":                {"- just so", "    wide"},
		"a wörd is":                   {"- a wörd", "    is"},
		"longerthanaline a b c d e":   {"- longerthanaline", "    a b c", "    d e"},
		"two\nlines\tand \x1b[2J too": {"- two", "    lines", "    and", `    \x1b[2J`, "    too"},
	} {
		if got := Wrap(text, 9, "- ", "    "); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
