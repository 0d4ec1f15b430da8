package contents

import (
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// asked is careful, and somebody has to approve that the others follow the canary.
var asked = strings.Replace(careful, "count: 1}", "count: 1, approval: Manual}", 1)

// A program that knows no content ran while a change of content waited. It named the target by its template, and left
// the stable revision as it was. Nobody is replaced after that: the canary has what it is to have.
func TestAChangeOfContentThatWaitsGoesOnAfterAProgramWithoutContent(t *testing.T) {
	for name, start := range map[string]func(w *world){
		"at once": func(w *world) { w.start(true) },
		"the namespace is read later": func(w *world) {
			w.start(false)
			w.pass(time.Minute)
			w.read()
			w.settle()
		},
		"one kind is read after the other": func(w *world) {
			w.start(false)
			w.readKind(content.ConfigMap)
			w.settle()
			w.readKind(content.Secret)
			w.settle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, asked)
			w.pass(20 * time.Minute)
			w.write("better")
			w.pass(20 * time.Minute)
			w.wantRuns(map[string]int{"good": 4, "better": 1})
			before := w.status()
			w.deletes = func(a *action.DeletePod) { t.Error(a) }
			w.stored = w.stored.DeepCopy()
			w.stored.Content, w.stored.Policy, w.stored.TargetRevision = nil, nil, "t1"
			w.stored.TargetDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000001"
			start(w)
			w.pass(20 * time.Minute)
			w.wantRuns(map[string]int{"good": 4, "better": 1})
			s := w.status()
			if s.StableRevision != before.StableRevision || s.TargetRevision != before.TargetRevision || s.Phase != v1alpha1.PhaseWaitingForApproval {
				t.Errorf("it is %s: %s, from %s to %s, and was from %s to %s", s.Phase, s.Message,
					s.StableRevision, s.TargetRevision, before.StableRevision, before.TargetRevision)
			}
		})
	}
}
