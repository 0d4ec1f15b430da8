package rolloutpolicy

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/loop/clocktest"
)

func TestWindows(t *testing.T) {
	work := v1alpha1.Window{Days: []string{"Mon", "Tue", "Wed", "Thu"}, From: "09:00", To: "16:00", TimeZone: "Europe/Berlin"}
	night := v1alpha1.Window{Days: []string{"Fri"}, From: "22:00", To: "04:00"}
	early := v1alpha1.Window{Days: []string{"Sun"}, From: "02:15", To: "02:45", TimeZone: "Europe/Berlin"}
	for _, c := range []struct {
		name    string
		windows []v1alpha1.Window
		now     string
		open    bool
		changes string
	}{
		{"none is always", nil, "2026-11-22T03:00:00Z", true, ""},
		{"winter time", []v1alpha1.Window{work}, "2026-11-23T07:59:59Z", false, "2026-11-23T08:00:00Z"},
		{"open", []v1alpha1.Window{work}, "2026-11-23T08:00:00Z", true, "2026-11-23T15:00:00Z"},
		{"summer time", []v1alpha1.Window{work}, "2026-07-06T07:00:00Z", true, "2026-07-06T14:00:00Z"},
		{"the end is outside", []v1alpha1.Window{work}, "2026-11-23T15:00:00Z", false, "2026-11-24T08:00:00Z"},
		{"after Thursday comes Monday", []v1alpha1.Window{work}, "2026-11-26T15:00:00Z", false, "2026-11-30T08:00:00Z"},
		{"over midnight", []v1alpha1.Window{night}, "2026-11-28T03:59:00Z", true, "2026-11-28T04:00:00Z"},
		{"the night before is not it", []v1alpha1.Window{night}, "2026-11-27T03:00:00Z", false, "2026-11-27T22:00:00Z"},
		{"whole days are one", []v1alpha1.Window{{Days: []string{"Sat", "Sun"}, From: "00:00", To: "24:00"}}, "2026-11-21T12:00:00Z", true, "2026-11-23T00:00:00Z"},
		{"windows that touch are one", []v1alpha1.Window{{From: "08:00", To: "12:00"}, {From: "12:00", To: "13:00"}}, "2026-11-21T09:00:00Z", true, "2026-11-21T13:00:00Z"},
		{"the earlier of two", []v1alpha1.Window{{From: "20:00", To: "21:00"}, {From: "12:00", To: "13:00"}}, "2026-11-21T09:00:00Z", false, "2026-11-21T12:00:00Z"},
		{"an hour that the clock leaves out", []v1alpha1.Window{early}, "2027-03-28T00:00:00Z", false, "2027-03-28T01:15:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compiled(t, v1alpha1.RolloutPolicySpec{Windows: c.windows})
			now, err := time.Parse(time.RFC3339, c.now)
			if err != nil {
				t.Fatal(err)
			}
			open, changes := p.Windows.Open(now)
			got := ""
			if !changes.IsZero() {
				got = changes.UTC().Format(time.RFC3339)
			}
			if open != c.open || got != c.changes {
				t.Errorf("open %v until %s, want %v until %s", open, got, c.open, c.changes)
			}
		})
	}
}

// TestWindowsMinuteByMinute asks at each minute of two weeks around a change of the
// clocks, and compares with the clock on the wall.
func TestWindowsMinuteByMinute(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	p := compiled(t, v1alpha1.RolloutPolicySpec{Windows: []v1alpha1.Window{
		{Days: []string{"Tue", "Sat"}, From: "09:30", To: "16:00", TimeZone: "Europe/Berlin"},
		{Days: []string{"Thu"}, From: "23:00", To: "01:00", TimeZone: "Europe/Berlin"},
	}})
	now := time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC)
	var expected time.Time
	was := false
	for range 14 * 24 * 60 {
		wall := now.In(berlin)
		minute, day := wall.Hour()*60+wall.Minute(), wall.Weekday()
		want := (day == time.Tuesday || day == time.Saturday) && minute >= 9*60+30 && minute < 16*60 ||
			day == time.Thursday && minute >= 23*60 || day == time.Friday && minute < 60
		open, changes := p.Windows.Open(now)
		if open != want {
			t.Fatalf("at %s open is %v", wall, open)
		}
		if open != was && !expected.IsZero() && !expected.Equal(now) {
			t.Fatalf("it changed at %s, and %s was announced", now, expected)
		}
		was, expected, now = open, changes, now.Add(time.Minute)
	}
}

// A window is open by the clock on the wall, also when somebody has set that back.
func TestWindowsOfAClockThatIsSetBack(t *testing.T) {
	p := compiled(t, v1alpha1.RolloutPolicySpec{Windows: []v1alpha1.Window{{From: "09:00", To: "16:00"}}})
	wrong := time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC)
	var o Opening
	if open, _ := o.Look(p, clocktest.At(wrong, time.Minute)); !open {
		t.Error("at 09:30 no window is open")
	}
	open, changes := o.Look(p, clocktest.At(wrong.Add(-time.Hour), 2*time.Minute))
	if want := wrong.Add(-30 * time.Minute); open || !changes.Equal(want) {
		t.Errorf("at 08:30 open is %v until %s, want until %s", open, changes, want)
	}
}
