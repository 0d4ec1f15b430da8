package matrix

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

var breakages = map[string]func(*row){
	"a total":       func(r *row) { r.totals[ready] += 5 },
	"a work set":    func(r *row) { r.work[workReplace].Clear(false) },
	"a group":       func(r *row) { r.groups[lacking].ReplaceOrInsert(r.cells["node-00003"]) },
	"a verdict":     func(r *row) { r.place(r.cells["node-00003"], verdict{work: workSurge}) },
	"a timer":       func(r *row) { r.timers.Set(&r.cells["node-00003"].timer, r.now.Add(time.Hour)) },
	"a judgement":   func(r *row) { r.cells["node-00003"].eligibility = placement.ShouldNotRun },
	"a lost cell":   func(r *row) { delete(r.cells, "node-00003") },
	"a lost column": func(r *row) { r.cells["node-00003"].column = nil },
}

// broken is a matrix in the middle of an update in which something has drifted.
func broken(destroy func(*row)) *Matrix {
	m, _ := fleet(10)
	info := m.rows["logs"].info
	info.Generation, info.Revision = 2, "b"
	m.Step(info)
	destroy(m.rows["logs"])
	return m
}

// Whatever is broken inside, the audit names it once and puts it right.
func TestAuditMends(t *testing.T) {
	for name, destroy := range breakages {
		t.Run(name, func(t *testing.T) {
			m := broken(destroy)
			if findings := m.Audit(); len(findings) == 0 {
				t.Fatal("the audit found nothing")
			}
			if findings := m.Audit(); len(findings) != 0 {
				t.Errorf("a second audit still finds %q", findings)
			}
		})
	}
}

// In slices an audit finds what it finds in one go.
func TestSlicesFindWhatTheWholeFinds(t *testing.T) {
	for name, destroy := range breakages {
		for _, size := range []int{1, 3, 100} {
			m := broken(destroy)
			var found []string
			for slices, done := 0, false; !done; slices++ {
				var some []string
				if some, done = m.AuditSlice(size); slices > 100 {
					t.Fatal("it does not come to its end")
				}
				found = append(found, some...)
			}
			want := broken(destroy).wholeAudit()
			slices.Sort(found)
			slices.Sort(want)
			if !slices.Equal(found, want) {
				t.Errorf("%s, %d at a time: it found\n%q, the whole finds\n%q", name, size, found, want)
			}
			if more := m.wholeAudit(); len(more) > 0 {
				t.Errorf("%s, %d at a time: it left %q", name, size, more)
			}
		}
	}
}

// What happens between two slices is no drift, and what has drifted is found by the end of
// the next audit, whatever happens meanwhile.
func TestSlicesAmongEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Config{})
		for range 4 {
			drawNode(t, w)
		}
		drawSet(t, w)
		t.Repeat(map[string]func(*rapid.T){
			"calm":      func(*rapid.T) { w.ready(); w.calm() },
			"set":       func(t *rapid.T) { drawSet(t, w) },
			"drop set":  func(t *rapid.T) { w.dropDaemonSet(types.UID(rapid.SampledFrom(setNames).Draw(t, "set"))) },
			"node":      func(t *rapid.T) { drawNode(t, w) },
			"drop node": func(t *rapid.T) { w.dropNode(rapid.SampledFrom(nodeNames).Draw(t, "node")) },
			"pod":       func(t *rapid.T) { drawForeignPod(t, w) },
			"change":    func(t *rapid.T) { drawPodChange(t, w) },
			"tick":      func(t *rapid.T) { w.tick(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second) },
			"": func(t *rapid.T) {
				if found, _ := w.m.AuditSlice(rapid.IntRange(0, 3).Draw(t, "cells")); len(found) > 0 {
					t.Fatalf("a slice found %q", found)
				}
			},
		})
		for uid, r := range w.m.rows {
			r.totals[ready] += 5
			for audits := 0; audits < 2; {
				if _, done := w.m.AuditSlice(2); done {
					audits++
				}
			}
			if found := w.m.wholeAudit(); len(found) > 0 {
				t.Fatalf("after two audits %s has %q", uid, found)
			}
		}
	})
}
