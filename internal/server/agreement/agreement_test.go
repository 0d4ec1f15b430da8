package agreement

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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

// TestAgreeAgain: a bad moment of the database ends no start; whether the write was made shows when it is read.
func TestAgreeAgain(t *testing.T) {
	t.Parallel()
	decide := func(string) (string, error) { return "mine", nil }
	for _, made := range []bool{false, true} {
		b, moments := &board{}, 2
		write := func(ctx context.Context, text string, revision int64) (bool, error) {
			moments--
			if moments < 0 {
				return b.write(ctx, text, revision)
			}
			if made {
				if done, err := b.write(ctx, text, revision); err != nil || !done {
					return done, err
				}
			}
			return false, fmt.Errorf("write what all servers have agreed on: %w", rpctypes.ErrLeaderChanged)
		}
		if err := agreeOn(t.Context(), b.read, decide, write); err != nil || b.text != "mine" {
			t.Errorf("the write was made: %v; agreed on %q, %v", made, b.text, err)
		}
	}
	broken := errors.New("permission denied")
	err := agreeOn(t.Context(), (&board{}).read, decide, func(context.Context, string, int64) (bool, error) { return false, broken })
	if !errors.Is(err, broken) {
		t.Errorf("what does not pass is told as %v", err)
	}
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
