package plaintext

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestCut(t *testing.T) {
	for text, want := range map[string]string{"": "", "1234": "1234", "12345": "1234…", "äöü": "äö…", "1äöü": "1ä…"} {
		if got := Cut(text, 4, "…"); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}

// A name that is too long becomes one that objects may have, and another one for another name.
func TestShortName(t *testing.T) {
	if got := ShortName("agent.example", 13); got != "agent.example" {
		t.Errorf("a name that fits becomes %q", got)
	}
	seen := map[string]bool{}
	for _, name := range []string{"a." + strings.Repeat("b", 30), "a." + strings.Repeat("b", 31), "a.-.-" + strings.Repeat("b", 30)} {
		got := ShortName(name, 20)
		if bad := validation.IsDNS1123Subdomain(got); len(got) > 20 || len(bad) > 0 || seen[got] {
			t.Errorf("%q becomes %q: %v, seen: %v", name, got, bad, seen[got])
		}
		seen[got] = true
	}
}
