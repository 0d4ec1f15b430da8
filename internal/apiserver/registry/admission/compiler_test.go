package admission

import (
	"runtime"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A configuration of 3 MB has tens of thousands of webhooks, each with good conditions of its own. What knows the
// language takes a megabyte to make, and is made once.
func TestWebhooksShareACompiler(t *testing.T) {
	conditions := []admissionv1.MatchCondition{{Name: "a.example", Expression: "request.kind.kind != 'Lease'"}}
	check := func() {
		if errs := validateConditions(conditions, false, field.NewPath("matchConditions")); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	check()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const times = 20
	for range times {
		check()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 100<<10 {
		t.Errorf("a webhook's condition takes %d KB", each>>10)
	}
}
