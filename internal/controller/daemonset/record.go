package daemonset

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placements"
)

// decisions is a matrix, or one that is recorded.
type decisions interface {
	belongings.Rows
	contents.Rows
	placements.Decisions
	Ready() []action.Action
	NextTick() (time.Time, bool)
	AuditSlice(most int) (findings []string, done bool)
	Dump() matrix.Snapshot
}

// recorder writes down what a matrix is told and what it decides. What it writes
// is a script: copied to testdata/recordings it is a test that tells another
// matrix the same and shows where that decides otherwise.
type recorder struct {
	*matrix.Matrix
	out     io.Writer
	numbers map[action.Action]int // of the actions that were not answered yet
	last    int
	err     error // ended the recording
}

func newRecorder(cfg row.Config, out io.Writer) *recorder {
	r := &recorder{Matrix: matrix.New(cfg), out: out, numbers: map[action.Action]int{}}
	r.write("config", cfg, "")
	return r
}

// write adds a step: a verb, what it is about, and what came out of it.
func (r *recorder) write(verb string, about any, outcome string) {
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

// numbered is an answer as it is written.
type numbered struct {
	Action int
	action.Answer
}

// Step records the event.
func (r *recorder) Step(e matrix.Event) {
	var about any = e
	if a, ok := e.(action.Answer); ok {
		about = numbered{r.numbers[a.Action], a}
		delete(r.numbers, a.Action)
	}
	r.write(e.Verb(), about, "")
	r.Matrix.Step(e)
}

// AuditSlice records that it was asked for.
func (r *recorder) AuditSlice(most int) ([]string, bool) {
	r.write("audit", most, "")
	return r.Matrix.AuditSlice(most)
}

// Ready records the actions, each with its number.
func (r *recorder) Ready() []action.Action {
	actions, text, before := r.Matrix.Ready(), "", r.last
	for _, a := range actions {
		r.last++
		switch a.(type) {
		case *action.FailedPlacement, *action.RolloutNews:
		default:
			r.numbers[a] = r.last
		}
		text += fmt.Sprintf("%d %s\n", r.last, a)
	}
	r.write("ready", before, text)
	return actions
}
