package env

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	lookup := Lookup([]Var{{"A", "first"}, {"A", "a"}, {"EMPTY", ""}, {"SELF", "$(A)"}, {"ü", "umlaut"}, {"x$(A", "odd"}})
	tests := []struct{ in, want string }{
		{"", ""},
		{"plain text", "plain text"},
		{"$(A)", "a"},
		{"$(A)$(A)", "aa"},
		{"<$(A)|$(EMPTY)|$(A)>", "<a||a>"},
		{"$(NO)", "$(NO)"},
		{"$$(A)", "$(A)"},
		{"$$$(A)", "$a"},
		{"$$$$(A)", "$$(A)"},
		{"$$", "$"},
		{"$", "$"},
		{"a$", "a$"},
		{"$(", "$("},
		{"$(A", "$(A"},
		{"$(A$(A)", "$(A$(A)"},
		{"$(x$(A)", "odd"},
		{"$()", "$()"},
		{"$A ${A} $ü", "$A ${A} $ü"},
		{"$(ü)", "umlaut"},
		{"$(SELF)", "$(A)"},
		{"$(A))", "a)"},
		{"\xff$(A)\xff", "\xffa\xff"},
	}
	for _, test := range tests {
		if got := Expand(test.in, lookup); got != test.want {
			t.Errorf("Expand(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"", "$(A)", "$$(A)", "$(", "a$", "$(A$(B)", "ü$ü", "$$$"} {
		f.Add(seed, "value")
	}
	f.Fuzz(func(t *testing.T, s, value string) {
		none := func(string) (string, bool) { return "", false }
		escaped := strings.ReplaceAll(s, "$", "$$")
		if got := Expand(escaped, none); got != s {
			t.Errorf("escaped %q expands to %q", s, got)
		}
		if !strings.Contains(s, "$$") {
			if got := Expand(s, none); got != s {
				t.Errorf("with nothing known %q becomes %q", s, got)
			}
		}
		all := func(string) (string, bool) { return value, true }
		if got := Expand(escaped+"$(X)", all); got != s+value {
			t.Errorf("after %q the reference becomes %q", escaped, got)
		}
	})
}
