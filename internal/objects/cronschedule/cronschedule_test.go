package cronschedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, zone, err string }{
		{"*/5 * * * *", "", ""},
		{"@daily", "Europe/Rome", ""},
		{"* * *", "", "expected exactly 5 fields, found 3: [* * *]"},
		{"TZ=0", "", "invalid schedule format: runtime error: slice bounds out of range [:-1]"},
		{"* * * * *", "Europe/Nowhere", `invalid timeZone: "Europe/Nowhere": unknown time zone Europe/Nowhere`},
	} {
		if _, err := Parse(c.text, c.zone); err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s in %s: %v, want %s", c.text, c.zone, err, c.err)
		}
	}
}

func TestZones(t *testing.T) {
	s, err := Parse("0 6 * * *", "America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Next(noon).UTC().Format(time.RFC3339); got != "2030-01-02T11:00:00Z" {
		t.Errorf("six o'clock in New York is %s", got)
	}
	never, err := Parse("59 23 31 2 *", "")
	if err != nil || !never.Next(noon).IsZero() || !never.Last(noon, noon.AddDate(3, 0, 0)).IsZero() {
		t.Errorf("the 31st of February is %v, %v", never.Next(noon), err)
	}
}

// The last time is what one gets by going through all times.
func TestLastAgainstAll(t *testing.T) {
	texts := []string{"* * * * *", "*/7 * * * *", "30 6-16/4 * * 1-5", "0 0 1 * *", "@hourly", "@every 90m", "@every 7s", "0 0 29 2 *"}
	rapid.Check(t, func(rt *rapid.T) {
		s, err := Parse(rapid.SampledFrom(texts).Draw(rt, "schedule"), "Europe/Rome")
		if err != nil {
			rt.Fatal(err)
		}
		since := noon.Add(time.Duration(rapid.IntRange(0, 300*24*3600).Draw(rt, "since")) * time.Second)
		now := since.Add(time.Duration(rapid.IntRange(0, 20*24*3600).Draw(rt, "for")) * time.Second)
		var want time.Time
		n := 0
		for due := s.Next(since); !due.IsZero() && !due.After(now); due = s.Next(due) {
			want = due
			n++
		}
		if got := s.Last(since, now); !got.Equal(want) {
			rt.Fatalf("the last time is %v, want %v", got, want)
		}
		if got := s.Missed(since, now, 101); got != min(n, 101) {
			rt.Fatalf("%d missed, want %d", got, n)
		}
	})
}
