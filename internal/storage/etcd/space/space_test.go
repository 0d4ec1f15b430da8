package space

import (
	"testing"
	"time"
)

const gib = 1 << 30

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name string
		f    Facts
		want Action
	}{
		{"a small database is left alone", Facts{Size: gib / 4, InUse: gib / 100, Revision: 50000}, Action{}},
		{"half of the quota is in use", Facts{Size: 5 * gib, InUse: 4*gib + 1, Revision: 50000},
			Action{CompactTo: 49000}},
		{"a follower leaves that to the leader", Facts{Size: 5 * gib, InUse: 4*gib + 1, Revision: 50000}, Action{}},
		{"nothing is left to compact", Facts{Size: 5 * gib, InUse: 4*gib + 1, Revision: 50000, Compacted: 49000},
			Action{}},
		{"half of a large file is free", Facts{Size: 2 * gib, InUse: gib - 1}, Action{Defragment: true}},
		{"a file near the quota", Facts{Size: 7 * gib, InUse: 4 * gib}, Action{Defragment: true}},
		{"a file near the quota that is in use", Facts{Size: 7 * gib, InUse: 6 * gib}, Action{Tell: Filling}},
		{"full", Facts{Size: 8 * gib, InUse: 8 * gib, Revision: 9000, Alarm: true},
			Action{CompactTo: 8000, Tell: Full}},
		{"full, and compacted", Facts{Size: 8 * gib, InUse: gib, Revision: 9000, Compacted: 8000, Alarm: true},
			Action{Defragment: true, Tell: Full}},
		{"full, and defragmented", Facts{Size: gib, InUse: gib, Revision: 9000, Alarm: true},
			Action{Disarm: true, Tell: Full}},
		{"full of what is current", Facts{Size: 8 * gib, InUse: 8 * gib, Revision: 9000, Compacted: 8000, Alarm: true},
			Action{Defragment: true, Tell: Full}},
		{"no room on the disk", Facts{Size: 2 * gib, InUse: gib / 2, Room: gib / 2}, Action{Tell: NoRoom}},
		{"no quota", Facts{Size: 2 * gib, Quota: -1}, Action{}},
	} {
		f := c.f
		f.Now = time.Unix(1e9, 0)
		f.Leads = c.name != "a follower leaves that to the leader"
		if f.Quota == 0 {
			f.Quota = 8 * gib
		}
		if f.Room == 0 {
			f.Room = 100 * gib
		}
		if got := new(Keeper).Next(f); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// What cannot help is not done again and again, and what was told is not told again.
func TestNextRemembers(t *testing.T) {
	k := &Keeper{}
	f := Facts{Now: time.Unix(1e9, 0), Size: 7 * gib, InUse: 5 * gib, Quota: 8 * gib, Room: 100 * gib, Leads: true}
	f.Revision = 9000
	step := func(what string, after time.Duration, want Action) {
		t.Helper()
		f.Now = f.Now.Add(after)
		if got := k.Next(f); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	step("first", 0, Action{CompactTo: 8000, Tell: Filling})
	f.Revision, f.Compacted = 9100, 8000
	step("next look", time.Second, Action{Defragment: true})
	step("the one after", time.Second, Action{})
	step("a minute later", time.Minute, Action{CompactTo: 8100})
	f.InUse, f.Size, f.Compacted = 4*gib+gib/2, 4*gib+gib/2, 8100
	step("below the mark by little", time.Second, Action{})
	f.InUse, f.Size = gib, gib
	step("below it by far", time.Second, Action{Tell: Relaxed})
	f.Alarm, f.Size, f.InUse, f.Compacted = true, 8*gib, 7*gib, 8100
	step("an alarm hurries", 5*time.Minute, Action{Defragment: true, Tell: Full})
	step("not every second", time.Second, Action{})
	step("but soon", defragmentOften, Action{Defragment: true})
}
