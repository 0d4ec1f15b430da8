package dashboard

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLongLinesOfLogsAreBroken: a page waits for the end of a line, and keeps lines.
func TestLongLinesOfLogsAreBroken(t *testing.T) {
	w := httptest.NewRecorder()
	long := strings.Repeat("x", 3*longestLine+5)
	relay(w, strings.NewReader("one\n\ntwo\n"+long+"\nrest"))
	got := w.Body.String()
	if !strings.HasPrefix(got, "one\n\ntwo\nx") || !strings.HasSuffix(got, "x\nrest") || strings.Count(got, "x") != len(long) {
		t.Errorf("of a log of %d bytes %d came, %.20q... to %q", len(long)+13, len(got), got, got[max(0, len(got)-20):])
	}
	for _, line := range strings.Split(got, "\n") {
		if len(line) > longestLine {
			t.Errorf("a line has %d bytes, more than %d", len(line), longestLine)
		}
	}
}
