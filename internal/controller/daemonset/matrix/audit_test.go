package matrix

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// What happens between two slices is no drift.
func TestSlicesAmongEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(row.Config{})
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
		if found := w.m.Audit(); len(found) > 0 {
			t.Fatalf("in the end the whole audit finds %q", found)
		}
	})
}
