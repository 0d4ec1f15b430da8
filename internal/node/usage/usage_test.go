package usage

import (
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	start := time.Unix(1e9, 0)
	at := func(seconds int, used time.Duration) Sample {
		return Sample{At: start.Add(time.Duration(seconds) * time.Second), Used: used}
	}
	got := Rate(at(0, time.Second), at(10, 6*time.Second))
	if got == nil || got.UsageNanoCores != 5e8 || got.UsageCoreNanoSeconds != 6e9 || got.Window.Duration != 10*time.Second || !got.Time.Time.Equal(start.Add(10*time.Second)) {
		t.Errorf("five seconds of ten: %+v, want half a core", got)
	}
	for name, pair := range map[string][2]Sample{
		"no sample before":  {{}, at(1, 1)},
		"no time passed":    {at(1, 1), at(1, 2)},
		"counted from zero": {at(1, 5), at(2, 4)},
		"clock turned back": {at(2, 1), at(1, 2)},
	} {
		if got := Rate(pair[0], pair[1]); got != nil {
			t.Errorf("%s: %+v, want no answer", name, got)
		}
	}
}
