package plaintext

import "testing"

func TestCut(t *testing.T) {
	for text, want := range map[string]string{"": "", "1234": "1234", "12345": "1234…", "äöü": "äö…", "1äöü": "1ä…"} {
		if got := Cut(text, 4, "…"); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}
