package matrix

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
	"k8s.io/apimachinery/pkg/types"
)

// TestRecordings replays what controllers wrote with --record-decisions: a matrix
// is told the same and must decide the same. Run with -rewrite after a change that
// is meant to decide otherwise.
func TestRecordings(t *testing.T) {
	datadriven.Walk(t, "testdata/recordings", replay)
}

func replay(t *testing.T, path string) {
	var r *replayer
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "config" {
			r = &replayer{actions: map[int]Action{}}
			var cfg Config
			r.read(t, d, &cfg)
			r.recorder = NewRecorder(cfg, &bytes.Buffer{})
			return ""
		}
		return r.step(t, d)
	})
}

type replayer struct {
	recorder *Recorder
	actions  map[int]Action
}

func (r *replayer) read(t *testing.T, d *datadriven.TestData, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(d.Input), into); err != nil {
		d.Fatalf(t, "%v", err)
	}
}

func (r *replayer) step(t *testing.T, d *datadriven.TestData) string {
	m := r.recorder
	switch d.Cmd {
	case "daemonset":
		var info DaemonSetInfo
		r.read(t, d, &info)
		m.UpdateDaemonSet(info)
	case "node":
		var info NodeInfo
		r.read(t, d, &info)
		m.UpdateNode(info)
	case "pod":
		var info PodInfo
		r.read(t, d, &info)
		m.UpdatePod(info)
	case "tick":
		var now time.Time
		r.read(t, d, &now)
		m.Tick(now)
	case "delete-daemonset", "delete-node", "delete-pod":
		var name string
		r.read(t, d, &name)
		switch d.Cmd {
		case "delete-daemonset":
			m.DeleteDaemonSet(types.UID(name))
		case "delete-node":
			m.DeleteNode(name)
		default:
			m.DeletePod(types.UID(name))
		}
	case "audit":
		m.Audit()
	case "ready":
		first := m.last + 1
		actions := m.Matrix.Ready()
		for i, a := range actions {
			r.actions[first+i] = a
		}
		return m.number(actions)
	case "done":
		r.answer(t, d)
	default:
		d.Fatalf(t, "no such step: %s", d.Cmd)
	}
	return ""
}

func (r *replayer) answer(t *testing.T, d *datadriven.TestData) {
	var got answer
	r.read(t, d, &got)
	a := r.actions[got.Action]
	delete(r.actions, got.Action)
	create, creates := a.(*CreatePod)
	switch {
	case a == nil:
		t.Errorf("%s: action %d was answered, and is not decided now", d.Pos, got.Action)
	case creates && got.Pod != "":
		r.recorder.Created(create, got.Pod)
	default:
		r.recorder.Done(a, got.Outcome)
	}
}

// record plays a short story with a recorder and returns what it wrote.
func record(wrong bool) []byte {
	var out bytes.Buffer
	m := NewRecorder(Config{StatusInterval: time.Second}, &out)
	m.Tick(noon)
	m.UpdateNode(NodeInfo{Name: "n1", Labels: map[string]string{"disk": "ssd"}})
	m.UpdateNode(NodeInfo{Name: "n2", Labels: map[string]string{"disk": "ssd"}, Taints: []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}})
	spec := corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}, Affinity: required(
		corev1.NodeSelectorTerm{MatchExpressions: requirement("disk", corev1.NodeSelectorOpExists)})}
	if wrong {
		spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	}
	m.UpdateDaemonSet(DaemonSetInfo{UID: "u", Namespace: "default", Name: "logs", Generation: 1, Revision: "a",
		Placement: CompilePlacement(&spec), Strategy: rollingUpdate("1", "0")})
	for _, a := range m.Ready() {
		if create, ok := a.(*CreatePod); ok {
			m.Created(create, "p")
			m.UpdatePod(PodInfo{UID: "p", Name: create.PodName, Owner: "u", Node: create.Node, Revision: "a", Bound: true, Ready: true, ReadySince: noon, Created: noon})
		} else {
			m.Done(a, OK)
		}
	}
	m.Tick(noon.Add(time.Minute))
	m.Ready()
	m.UpdatePod(PodInfo{UID: "p", Name: "logs", Owner: "u", Node: "n1", Revision: "a", Bound: true, Phase: PodFailed, Created: noon})
	for _, a := range m.Ready() {
		m.Done(a, Failed)
	}
	m.DeletePod("p")
	m.Audit()
	m.DeleteNode("n1")
	m.Ready()
	m.DeleteDaemonSet("u")
	return out.Bytes()
}

// What a recorder writes is a test that passes.
func TestARecordingReplays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording.txt")
	if err := os.WriteFile(path, record(false), 0o600); err != nil {
		t.Fatal(err)
	}
	replay(t, path)
	if bytes.Equal(record(false), record(true)) {
		t.Error("a DaemonSet that tolerates more gives the same recording")
	}
}

func TestPlacementAsJSON(t *testing.T) {
	spec := corev1.PodSpec{NodeName: "n", NodeSelector: map[string]string{"a": "b"}, HostNetwork: true,
		Affinity:    required(corev1.NodeSelectorTerm{MatchExpressions: requirement("disk", corev1.NodeSelectorOpExists)}),
		Tolerations: []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}}
	want := CompilePlacement(&spec)
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Placement
	if err := json.Unmarshal(raw, &got); err != nil || got.key != want.key {
		t.Errorf("got %s, %v, want %s", got.key, err, want.key)
	}
	if err := json.Unmarshal([]byte(`[1]`), &got); err == nil {
		t.Error("a number is taken for a node's name")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// A recording that cannot be written stops, and nothing else does.
func TestARecordingThatBreaks(t *testing.T) {
	m := NewRecorder(Config{}, brokenWriter{})
	m.UpdateNode(NodeInfo{Name: "n1"})
	m.UpdateDaemonSet(DaemonSetInfo{UID: "u", Name: "logs", Placement: CompilePlacement(&corev1.PodSpec{}), Strategy: rollingUpdate("1", "0")})
	if actions := m.Ready(); len(actions) != 2 {
		t.Errorf("actions are %v, want a creation and a status", actions)
	}
	if m.Err() == nil || m.Err().Error() != `record "config": disk full` {
		t.Errorf("the error is %v", m.Err())
	}
}
