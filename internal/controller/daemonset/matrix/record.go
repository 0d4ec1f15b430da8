package matrix

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Recorder is a Matrix that writes down what it is told and what it decides. What
// it writes is a script: copied to testdata/recordings it is a test that tells
// another matrix the same and shows where that decides otherwise.
type Recorder struct {
	*Matrix
	out     io.Writer
	numbers map[Action]int // of the actions that were not answered yet
	last    int
	err     error
}

// NewRecorder returns an empty matrix that writes to out. Nothing is written any
// more after an error of out; see Err.
func NewRecorder(cfg Config, out io.Writer) *Recorder {
	r := &Recorder{Matrix: New(cfg), out: out, numbers: map[Action]int{}}
	r.write("config", r.cfg, "")
	return r
}

// Err is the error that ended the recording, if one did.
func (r *Recorder) Err() error { return r.err }

// write adds a step: a verb, what it is about, and what came out of it.
func (r *Recorder) write(verb string, about any, outcome string) {
	if r.err != nil {
		return
	}
	raw, err := json.Marshal(about)
	if err == nil {
		_, err = fmt.Fprintf(r.out, "%s\n%s\n----\n%s\n", verb, raw, outcome)
	}
	if err != nil {
		r.err = fmt.Errorf("record %q: %w", verb, err)
	}
}

// UpdateDaemonSet records the call.
func (r *Recorder) UpdateDaemonSet(info DaemonSetInfo) {
	r.write("daemonset", info, "")
	r.Matrix.UpdateDaemonSet(info)
}

// DeleteDaemonSet records the call.
func (r *Recorder) DeleteDaemonSet(uid types.UID) {
	r.write("delete-daemonset", uid, "")
	r.Matrix.DeleteDaemonSet(uid)
}

// UpdateNode records the call.
func (r *Recorder) UpdateNode(info NodeInfo) {
	r.write("node", info, "")
	r.Matrix.UpdateNode(info)
}

// DeleteNode records the call.
func (r *Recorder) DeleteNode(name string) {
	r.write("delete-node", name, "")
	r.Matrix.DeleteNode(name)
}

// UpdatePod records the call.
func (r *Recorder) UpdatePod(info PodInfo) {
	r.write("pod", info, "")
	r.Matrix.UpdatePod(info)
}

// DeletePod records the call.
func (r *Recorder) DeletePod(uid types.UID) {
	r.write("delete-pod", uid, "")
	r.Matrix.DeletePod(uid)
}

// Tick records the call.
func (r *Recorder) Tick(now time.Time) {
	r.write("tick", now, "")
	r.Matrix.Tick(now)
}

// Audit records the call and what it found.
func (r *Recorder) Audit() []string {
	found := r.Matrix.Audit()
	r.write("audit", len(found), "")
	return found
}

// Ready records the actions, each with its number.
func (r *Recorder) Ready() []Action {
	actions := r.Matrix.Ready()
	r.write("ready", r.last, r.number(actions))
	return actions
}

// number numbers the actions and returns them in words.
func (r *Recorder) number(actions []Action) string {
	text := ""
	for _, a := range actions {
		r.last++
		if _, unanswered := a.(*FailedPlacement); !unanswered {
			r.numbers[a] = r.last
		}
		text += fmt.Sprintf("%d %s\n", r.last, a)
	}
	return text
}

// answer is what came of an action.
type answer struct {
	Action  int
	Outcome Outcome
	Pod     types.UID `json:",omitempty"`
}

// Created records the call.
func (r *Recorder) Created(a *CreatePod, pod types.UID) {
	r.write("done", answer{r.take(a), OK, pod}, "")
	r.Matrix.Created(a, pod)
}

// Done records the call.
func (r *Recorder) Done(a Action, o Outcome) {
	r.write("done", answer{Action: r.take(a), Outcome: o}, "")
	r.Matrix.Done(a, o)
}

func (r *Recorder) take(a Action) int {
	n := r.numbers[a]
	delete(r.numbers, a)
	return n
}
