package plan

import (
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const cluster = "0123abcd-0000-4000-8000-000000000000"

func day(n int) string { return Name(cluster, start.AddDate(0, 0, n), int64(n)) }

func TestBackupsOfAnotherCluster(t *testing.T) {
	other := Name("4123abcd-0000-4000-8000-000000000000", start, 1)
	names := []string{day(1), other, "everynode-20260101T000000Z-r1.backup", "notes.txt", day(2)}
	if got, want := Of(cluster, names), []string{day(1), day(2)}; !slices.Equal(got, want) {
		t.Errorf("of the cluster are %v, want %v", got, want)
	}
	if got := Of("", names); got != nil {
		t.Errorf("of no cluster are %v", got)
	}
}

func TestExpired(t *testing.T) {
	now := start.AddDate(0, 0, 10)
	for name, c := range map[string]struct {
		names []string
		last  string
		keep  int
		want  []string
	}{
		"none":                 {nil, day(10), 3, nil},
		"fewer than stay":      {[]string{day(8), day(9), day(10)}, day(10), 3, nil},
		"the oldest":           {[]string{day(7), day(9), day(8), day(10)}, day(10), 3, []string{day(7)}},
		"only the last stays":  {[]string{day(8), day(9), day(10)}, day(10), 1, []string{day(9), day(8)}},
		"never the last":       {[]string{day(10)}, day(10), 0, nil},
		"the last is not seen": {[]string{day(8), day(9)}, day(10), 1, []string{day(9), day(8)}},
		"of others":            {[]string{"notes.txt", "everynode-x-r1.backup", "../" + day(1), day(10)}, day(10), 1, nil},
		"of the future":        {[]string{day(999), day(8), day(9), day(10)}, day(10), 3, []string{day(999)}},
		"last by an old clock": {[]string{day(8), day(9), day(1)}, day(1), 2, []string{day(8)}},
	} {
		if got := Expired(c.names, c.last, c.keep, now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestWait(t *testing.T) {
	for name, c := range map[string]struct {
		newest, now time.Time
		want        time.Duration
	}{
		"never made one":  {time.Time{}, start, 0},
		"just made":       {start, start, time.Hour},
		"half way":        {start, start.Add(30 * time.Minute), 30 * time.Minute},
		"due":             {start, start.Add(2 * time.Hour), 0},
		"the clock jumps": {start.AddDate(1, 0, 0), start, 0},
	} {
		if got := Wait(c.newest, c.now, time.Hour); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestRetryGrowsAndEnds(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: firstRetry, 2: 2 * firstRetry, 3: 4 * firstRetry, 1000: longestRetry} {
		if got := Retry(failures, time.Hour); got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
	if got := Retry(5, time.Minute); got != time.Minute {
		t.Errorf("with a short schedule: %v", got)
	}
}

func TestNewest(t *testing.T) {
	if got := Newest([]string{day(2), "x", day(5), day(3)}); !got.Equal(start.AddDate(0, 0, 5)) {
		t.Errorf("%v", got)
	}
}
