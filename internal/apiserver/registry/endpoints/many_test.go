package endpoints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// TestManyBadSubsets: after more errors than anybody is told the rest of a long list is not looked at.
func TestManyBadSubsets(t *testing.T) {
	e := &corev1.Endpoints{Subsets: make([]corev1.EndpointSubset, 5000)}
	errs := validate(e, true)
	if len(errs) < enough.Errors || len(errs) > 2*enough.Errors {
		t.Errorf("there are %d errors", len(errs))
	}
}
