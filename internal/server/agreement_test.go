package server

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// board is what servers on an etcd of others have written down. Another server writes each of these just before this one does.
type board struct {
	text     string
	revision int64
	others   []string
}

func (b *board) read(context.Context) (string, int64, error) { return b.text, b.revision, nil }

func (b *board) write(_ context.Context, text string, revision int64) (bool, error) {
	if len(b.others) > 0 {
		b.text, b.others = b.others[0], b.others[1:]
		b.revision++
	}
	if revision != b.revision {
		return false, nil
	}
	b.text = text
	b.revision++
	return true, nil
}

// Servers that start at the same time agree with what the quickest wrote, or say in what they do not.
func TestServersThatStartAtTheSameTime(t *testing.T) {
	decide := func(all string) (string, error) {
		if all != "" && all != "same" {
			return "", errors.New("other keys: " + all)
		}
		return "same", nil
	}
	for name, c := range map[string]struct {
		others []string
		want   string
	}{
		"alone":                     {nil, ""},
		"beside one with the same":  {[]string{"same"}, ""},
		"beside one with other":     {[]string{"other"}, "other keys: other"},
		"beside some that go again": {[]string{"", "", "same"}, ""},
		"beside too many":           {make([]string, 100), "other servers write it again and again"},
	} {
		b := &board{others: c.others}
		err := agreeOn(t.Context(), b.read, decide, b.write)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil && b.text != "same" {
			t.Errorf("%s: agreed on %q", name, b.text)
		}
	}
}
