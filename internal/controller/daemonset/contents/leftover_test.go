package contents

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
)

// TestNoCopyOutlivesItsList: Secrets that are no content any more are read until their copies are gone, also where
// these are seen after the lists by a controller that starts.
func TestNoCopyOutlivesItsList(t *testing.T) {
	w := newWorld(t, careful)
	w.secretsAreNoContentAnyMore()
	for range 100 {
		w.second()
	}
	w.start(false)
	w.readKind(content.ConfigMap)
	w.pass(time.Minute) // until Secrets are read too
	w.readKind(content.Secret)
	for range 10 {
		w.pass(30 * time.Second)
	}
	w.wantNoSecretCopies()
}

// TestACopyThatWasMadeWithoutAnAnswerGoes: a copy of a Secret is on its list before anybody knows whether it was made.
// So it is found, and deleted, also where Secrets are no content any more by then.
func TestACopyThatWasMadeWithoutAnAnswerGoes(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			w := newWorldWith(t, careful, func(*Job) string { return "not yet" })
			w.refuse = nil
			lost := 0
			w.interrupts = func(o metav1.Object) (ends, made bool) {
				if _, secret := o.(*corev1.Secret); secret && lost == 0 {
					lost++
					return true, true
				}
				return false, true
			}
			for range 20 {
				if lost == 0 {
					w.tick(time.Second)
					w.settle()
				}
			}
			if lost == 0 {
				t.Fatal("no copy of the Secret was made")
			}
			w.secretsAreNoContentAnyMore()
			if restart {
				w.start(true)
			}
			for range 100 {
				w.second()
			}
			for range 10 {
				w.pass(30 * time.Second)
			}
			w.wantNoSecretCopies()
		})
	}
}

func (w *world) secretsAreNoContentAnyMore() {
	w.policy = w.compile(`
waves: [{name: canary, count: 1}]
failure: {max: 0, min: 1, then: Rollback}
content: {configMaps: Referenced, settle: 5s}`)
	w.tellPolicy()
}

func (w *world) wantNoSecretCopies() {
	w.Helper()
	for ref, o := range w.objects {
		if _, secret := o.(*corev1.Secret); secret && o.GetLabels()[content.Label] == content.IsCopy {
			w.Errorf("%s is left", ref)
		}
	}
}
