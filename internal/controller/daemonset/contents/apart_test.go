package contents

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
)

// byLabel is careful where a label excludes objects.
var byLabel = strings.Replace(careful, "names: [ca]", "selector: {matchLabels: {urgent: revocations}}", 1)

var revokedRef = content.Ref{Kind: content.ConfigMap, Name: "revoked"}

// revoke has somebody write the list of revocations, with the label or without.
func (w *world) revoke(value string, urgent bool) {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: revokedRef.Name},
		Data: map[string]string{"list": value}}
	if urgent {
		m.Labels = map[string]string{"urgent": "revocations"}
	}
	w.put(m)
	w.settle()
}

// newRevoked is a world whose template names a list of revocations too.
func newRevoked(t *testing.T) *world {
	w := newWorld(t, byLabel)
	w.set = w.set.DeepCopy()
	w.set.Spec.Template.Spec.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{
		ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: revokedRef.Name}},
	}}}}
	return w
}

const withoutList, withList = "[ConfigMap conf Secret token]", "[ConfigMap conf ConfigMap revoked Secret token]"

// What a label excludes stays excluded while it is not there: that it goes, and comes again, is no change, also where
// the template, other content or the controller is another one by then.
func TestWhatALabelExcludesMayGoAndCome(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world){
		"nothing":           func(*world) {},
		"a start":           func(w *world) { w.start(true) },
		"another template":  func(w *world) { w.edit(); w.pass(time.Minute) },
		"another content":   func(w *world) { w.write("new"); w.pass(time.Minute) },
		"both, and a start": func(w *world) { w.edit(); w.write("new"); w.pass(time.Minute); w.start(true) },
		"content is off once": func(w *world) {
			w.policy = w.compile(plain)
			w.tellPolicy()
			w.pass(time.Hour)
			w.policy = w.compile(byLabel)
			w.tellPolicy()
			w.pass(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRevoked(t)
			w.revoke("first", true)
			w.edit()
			w.pass(time.Minute)
			w.wantPhase(complete, "5 of 5")
			w.drop(revokedRef)
			w.pass(time.Minute)
			meanwhile(w)
			w.pass(time.Minute)
			w.wantPhase(complete, "5 of 5")
			if got := fmt.Sprint(w.members()); got != withoutList {
				t.Errorf("without the list the content is %s, want %s", got, withoutList)
			}
			before, stable := w.restarts, w.status().StableRevision
			w.start(true)
			w.revoke("second", true)
			w.pass(time.Minute)
			w.drop(revokedRef)
			w.pass(time.Minute)
			if w.restarts != before || w.status().StableRevision != stable {
				t.Errorf("%d pods are made for a list that comes and goes; stable is %s, and was %s", w.restarts-before,
					w.status().StableRevision, stable)
			}
			// One that carries no such label is content, in its steps.
			w.revoke("third", false)
			w.pass(time.Minute)
			w.wantPhase(complete, "5 of 5")
			if got := fmt.Sprint(w.members()); got != withList {
				t.Errorf("with another list the content is %s, want %s", got, withList)
			}
		})
	}
}

// Of an object that was never there nobody knows the labels: it counts as content, so that nothing reaches all nodes at
// once. When it comes with the label, that is a change, in steps, and the last one.
func TestWhatWasNeverThereIsContent(t *testing.T) {
	w := newRevoked(t)
	w.edit()
	w.pass(time.Minute)
	if got := fmt.Sprint(w.members()); got != withList {
		t.Errorf("the content is %s, want %s", got, withList)
	}
	w.revoke("first", true)
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
	if got := fmt.Sprint(w.members()); got != withoutList {
		t.Errorf("with the list the content is %s, want %s", got, withoutList)
	}
	before := w.restarts
	w.drop(revokedRef)
	w.pass(time.Minute)
	w.revoke("second", true)
	w.pass(time.Minute)
	if w.restarts != before {
		t.Errorf("%d pods are made for a list that goes and comes again", w.restarts-before)
	}
}

// Whether an object is excluded goes by the policy as it is now, also while the object is not there.
func TestWhatIsExcludedNoMoreIsContent(t *testing.T) {
	w := newRevoked(t)
	w.revoke("first", true)
	w.edit()
	w.pass(time.Minute)
	w.drop(revokedRef)
	w.policy = w.compile(careful)
	w.tellPolicy()
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
	if got := fmt.Sprint(w.members()); got != withList {
		t.Errorf("the content is %s, want %s", got, withList)
	}
}
