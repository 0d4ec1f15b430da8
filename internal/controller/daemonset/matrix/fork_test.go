package matrix

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// A fork decides as the original does, and what happens to it does not happen to
// the original.
func TestAForkGoesItsOwnWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Config{})
		drawSet(t, w)
		for range 5 {
			drawNode(t, w)
		}
		t.Repeat(map[string]func(*rapid.T){
			"calm":   func(t *rapid.T) { checkActions(t, w); w.calm() },
			"set":    func(t *rapid.T) { drawSet(t, w) },
			"node":   func(t *rapid.T) { drawNode(t, w) },
			"pod":    func(t *rapid.T) { drawPodChange(t, w) },
			"ready":  func(t *rapid.T) { checkActions(t, w) },
			"finish": func(t *rapid.T) { drawFinish(t, w) },
			"tick":   func(t *rapid.T) { w.tick(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second) },
		})
		for uid := range w.sets {
			before := w.m.Dump().String() + counts(w.m, uid)
			ahead := playedForward(t, w.m.Fork(uid), uid)
			if got := w.m.Dump().String() + counts(w.m, uid); got != before {
				t.Fatalf("the original was\n%s\nand is\n%s", before, got)
			}
			if findings := w.m.Audit(); len(findings) > 0 {
				t.Fatalf("the audit of the original found %q", findings)
			}
			if again := playedForward(t, w.m.Fork(uid), uid); again != ahead {
				t.Fatalf("one fork comes to\n%s\nanother to\n%s", ahead, again)
			}
			twin := w.m.Fork(uid)
			if want, got := of(uid, w.ready()), of(uid, twin.Ready()); !slices.Equal(want, got) {
				t.Fatalf("the original wants %q, its fork %q", want, got)
			}
		}
	})
}

func counts(m *Matrix, uid types.UID) (out string) {
	for _, revision := range revisions {
		out += fmt.Sprintln("pods of revision", revision, m.PodsOfRevision(uid, revision))
	}
	return out
}

// of are the actions about a row, with the names of pods.
func of(uid types.UID, actions []Action) (out []string) {
	for _, a := range actions {
		if a.Row() == uid {
			out = append(out, fmt.Sprintf("%+v", a))
		}
	}
	return out
}

// playedForward lets everything succeed for an hour and says what comes of it.
func playedForward(t *rapid.T, m *Matrix, uid types.UID) string {
	made := 0
	for range 60 {
		for _, a := range m.Ready() {
			e := Answer{Action: a}
			switch a := a.(type) {
			case *CreatePod:
				made++
				e.Pod = types.UID(fmt.Sprint("ahead-", made))
				m.Step(PodInfo{UID: e.Pod, Name: a.PodName, Owner: uid, Node: a.Node, Revision: a.Revision, Before: a.Before, Bound: true, Ready: true, ReadySince: m.now, Created: m.now})
			case *DeletePod:
				m.Step(PodGone(a.PodUID))
			case *FailedPlacement:
				continue
			}
			m.Step(e)
		}
		m.Step(Now{m.now.Add(time.Minute)})
	}
	if findings := m.Audit(); len(findings) > 0 {
		t.Fatalf("the audit of the fork found %q", findings)
	}
	return m.Dump().String()
}
