package join

import (
	"strings"
	"testing"
)

const goodToken = "abc123.0123456789abcdef.0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseToken(t *testing.T) {
	got, err := ParseToken(" " + goodToken + "\n")
	if err != nil || got.ID != "abc123" || got.Secret != "0123456789abcdef" || len(got.CAHash) != 64 {
		t.Errorf("token %+v, %v", got, err)
	}
	hash := strings.Repeat("a", 64)
	tests := []struct{ token, want string }{
		{"", "three parts"},
		{"abc123.0123456789abcdef", "three parts"},
		{goodToken + ".", "three parts"},
		{"abc12.0123456789abcdef." + hash, "the first part"},
		{"ABC123.0123456789abcdef." + hash, "the first part"},
		{"abc123.0123456789abcde." + hash, "the second part"},
		{"abc123.0123456789abcdeü." + hash, "the second part"},
		{"abc123.0123456789abcdef." + hash[1:], "the third part"},
		{"abc123.0123456789abcdef." + strings.ToUpper(hash), "the third part"},
		{"abc123.0123456789abcdef." + hash[1:] + "g", "the third part"},
	}
	for _, test := range tests {
		_, err := ParseToken(test.token)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ParseToken(%q) gives %v, want an error about %s", test.token, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789abcde") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(goodToken)
	f.Add("a.b.c")
	f.Add("..")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err == nil && token.ID+"."+token.Secret+"."+token.CAHash != strings.TrimSpace(s) {
			t.Errorf("%q is read as %+v", s, token)
		}
		if err == nil && token.bearer() != strings.TrimSpace(s)[:23] {
			t.Errorf("%q is shown to the server as %q", s, token.bearer())
		}
	})
}
