package contents

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/content"
)

// TestNoCopyOutlivesItsList: Secrets that are no content any more are read until their copies are gone, also where
// these are seen after the lists by a controller that starts.
func TestNoCopyOutlivesItsList(t *testing.T) {
	w := newWorld(t, careful)
	w.policy = w.compile(`
waves: [{name: canary, count: 1}]
failure: {max: 0, min: 1, then: Rollback}
content: {configMaps: Referenced, settle: 5s}`)
	w.tellPolicy()
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
	for ref, o := range w.objects {
		if _, secret := o.(*corev1.Secret); secret && o.GetLabels()[content.Label] == content.IsCopy {
			t.Errorf("%s is left", ref)
		}
	}
}
