package daemonset

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// TestRecordings replays what controllers wrote with --record-decisions: a matrix
// is told the same and must decide the same. Run with -rewrite after a change that
// is meant to decide otherwise.
func TestRecordings(t *testing.T) {
	datadriven.Walk(t, "testdata/recordings", replay)
}

func replay(t *testing.T, path string) {
	var out bytes.Buffer
	var r *recorder
	actions := map[int]action.Action{}
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		read := func(into any) {
			if err := json.Unmarshal([]byte(d.Input), into); err != nil {
				d.Fatalf(t, "%v", err)
			}
		}
		switch d.Cmd {
		case "config":
			var cfg row.Config
			read(&cfg)
			r = newRecorder(cfg, &out)
		case "audit":
			var most int
			read(&most)
			r.AuditSlice(most)
		case "ready":
			first := r.last + 1
			out.Reset()
			for i, a := range r.Ready() {
				actions[first+i] = a
			}
			_, text, _ := bytes.Cut(out.Bytes(), []byte("----\n"))
			return string(bytes.TrimSuffix(text, []byte("\n")))
		default:
			e, err := matrix.ReadEvent(d.Cmd, []byte(d.Input))
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			if a, ok := e.(action.Answer); ok {
				var n struct{ Action int }
				read(&n)
				a.Action = actions[n.Action]
				if a.Action == nil {
					t.Errorf("%s: action %d was answered, and is not decided now", d.Pos, n.Action)
					return ""
				}
				delete(actions, n.Action)
				e = a
			}
			r.Step(e)
		}
		return ""
	})
}

// recordStory plays a short story with a recorder and returns what it wrote.
func recordStory(wrong bool) []byte {
	var out bytes.Buffer
	m := newRecorder(row.Config{StatusInterval: time.Second}, &out)
	m.Step(fact.Now{Time: noon})
	m.Step(fact.Node{Name: "n1", Labels: map[string]string{"disk": "ssd"}})
	m.Step(fact.Node{Name: "n2", Labels: map[string]string{"disk": "ssd"}, Taints: []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}})
	spec := corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}
	if wrong {
		spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	}
	m.Step(fact.DaemonSet{UID: "u", Namespace: "default", Name: "logs", Generation: 1, Revision: "a", Placement: placement.Compile(&spec)})
	for _, a := range m.Ready() {
		create, ok := a.(*action.CreatePod)
		if !ok {
			m.Step(action.Answer{Action: a})
			continue
		}
		m.Step(action.Answer{Action: create, Pod: "p"})
		m.Step(fact.Pod{UID: "p", Name: create.PodName, Owner: "u", Node: create.Node, Revision: "a", Bound: true, Ready: true, ReadySince: noon, Created: noon})
	}
	m.Step(fact.Now{Time: noon.Add(time.Minute)})
	m.Ready()
	m.Step(fact.Pod{UID: "p", Name: "logs", Owner: "u", Node: "n1", Revision: "a", Bound: true, Phase: fact.PodFailed, Created: noon})
	for _, a := range m.Ready() {
		m.Step(action.Answer{Action: a, Outcome: action.Failed})
	}
	m.Step(fact.PodGone("p"))
	m.AuditSlice(100)
	m.Step(fact.NodeGone("n1"))
	m.Ready()
	m.Step(fact.DaemonSetGone("u"))
	return out.Bytes()
}

// What a recorder writes is a test that passes.
func TestARecordingReplays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording.txt")
	if err := os.WriteFile(path, recordStory(false), 0o600); err != nil {
		t.Fatal(err)
	}
	replay(t, path)
	if bytes.Equal(recordStory(false), recordStory(true)) {
		t.Error("a DaemonSet that tolerates more gives the same recording")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// A recording that cannot be written stops, and nothing else does.
func TestARecordingThatBreaks(t *testing.T) {
	m := newRecorder(row.Config{}, brokenWriter{})
	m.Step(fact.Node{Name: "n1"})
	m.Step(fact.DaemonSet{UID: "u", Name: "logs", Placement: placement.Compile(&corev1.PodSpec{})})
	if actions := m.Ready(); len(actions) != 2 {
		t.Errorf("actions are %v, want a creation and a status", actions)
	}
	if m.err == nil || m.err.Error() != `record "config": disk full` {
		t.Errorf("the error is %v", m.err)
	}
}
