package rolloutpolicy

import (
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// SetDefaults fills in what a policy leaves out. The types say the same in their
// markers, for definitions.
func SetDefaults(spec *v1alpha1.RolloutPolicySpec) {
	for i := range spec.Waves {
		w := &spec.Waves[i]
		if w.Approval == "" {
			w.Approval = v1alpha1.ApprovalAutomatic
		}
		if w.Fetch {
			fillText(&w.FetchDeadline, "10m")
		}
		if w.Ramp != nil {
			fill(&w.Ramp.From, 1)
			fill(&w.Ramp.Factor, 2)
		}
	}
	f := &spec.Failure
	fill(&f.Max, intstr.FromString("5%"))
	fill(&f.Min, 1)
	if f.StartDeadline == "" {
		f.StartDeadline = "10m"
	}
	fill(&f.Restarts, 3)
	if f.Then == "" {
		f.Then = v1alpha1.FailureHalt
	}
	fill(&spec.NodeFaults.Max, intstr.FromString("20%"))
	if c := spec.Content; c != nil {
		fillText(&c.ConfigMaps, v1alpha1.ContentReferenced)
		fillText(&c.Secrets, v1alpha1.ContentNone)
		fillText(&c.Apply, v1alpha1.ContentRestart)
		fillText(&c.Settle, "5s")
	}
	for i := range spec.Windows {
		if w := &spec.Windows[i]; w.TimeZone == "" {
			w.TimeZone = "UTC"
		}
	}
}

func fill[T any](to **T, value T) {
	if *to == nil {
		*to = ptr.To(value)
	}
}

func fillText[T ~string](to *T, value T) {
	if *to == "" {
		*to = value
	}
}
