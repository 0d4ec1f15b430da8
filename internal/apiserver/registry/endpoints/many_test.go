package endpoints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// TestManyBadSubsets: after more errors than anybody is told the rest of a long list is not looked at.
func TestManyBadSubsets(t *testing.T) {
	e := &corev1.Endpoints{Subsets: make([]corev1.EndpointSubset, 5000)}
	errs := validate(e, true)
	if len(errs) < resource.EnoughErrors || len(errs) > 2*resource.EnoughErrors {
		t.Errorf("there are %d errors", len(errs))
	}
}
