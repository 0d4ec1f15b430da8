package progress

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestProgressThroughAPipe(t *testing.T) {
	r, w := io.Pipe()
	report := ReportTo(w)
	broken := errors.New("broken")
	go func() {
		_ = report.Step("good", func() (string, error) { return "text", nil })
		_ = report.Step("bad", func() (string, error) { return "", broken })
		_ = w.Close()
	}()
	var got []string
	err := Read(r, func(e Event) error {
		got = append(got, string(e.Kind)+" "+e.Step+" "+e.Text)
		return nil
	})
	want := "begin good |done good text|begin bad |failed bad "
	if strings.Join(got, "|") != want || err != nil {
		t.Errorf("got %q (%v), want %q", strings.Join(got, "|"), err, want)
	}
}

func TestScreen(t *testing.T) {
	events := []Event{
		{Kind: Note, Text: "A new cluster"},
		{Kind: Begin, Step: "network"},
		{Kind: Done, Step: "network", Text: "10.9.8.0/24", Took: 1500 * time.Millisecond},
		{Kind: Begin, Step: "nodes"},
		{Kind: Failed, Step: "nodes", Took: time.Second},
	}
	show := func(terminal bool) string {
		var b bytes.Buffer
		s := NewScreen(&b, terminal)
		for _, e := range events {
			s.Report(e)
		}
		s.Close()
		return b.String()
	}
	lines := strings.Split(strings.TrimSpace(show(false)), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	if got, want := strings.Join(lines, "|"), "A new cluster|✓ network 10.9.8.0/24 1.5s|✗ nodes failed 1.0s"; got != want {
		t.Errorf("plain output is %q, want %q", got, want)
	}
	if plain := show(false); strings.ContainsAny(plain, "\r\x1b") {
		t.Errorf("plain output has terminal codes: %q", plain)
	}
	if got := show(true); !strings.Contains(got, "… network") || strings.HasSuffix(got, ")") {
		t.Errorf("terminal output shows no running step, or leaves one: %q", got)
	}
}
