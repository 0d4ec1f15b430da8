package apiserver

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"

	"github.com/everynode/everynode/internal/apiserver/insidedoor"
)

// metered is a plugin whose answers to requests are counted and timed one by one. Writes
// through the inside door come by the thousand, pass two dozen plugins that have nothing to
// say of most of them, and would spend more on the counting than on the plugins.
type metered struct {
	admission.Interface
	counting admission.Interface
}

func newMetered(plugin admission.Interface, name string) admission.Interface {
	return metered{plugin, admissionmetrics.WithControllerMetrics(plugin, name)}
}

func (m metered) as(ctx context.Context) admission.Interface {
	if insidedoor.Inside(ctx) {
		return m.Interface
	}
	return m.counting
}

// Admit implements admission.MutationInterface.
func (m metered) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p, ok := m.as(ctx).(admission.MutationInterface); ok {
		return p.Admit(ctx, a, o) //nolint:wrapcheck // It is the plugin.
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (m metered) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p, ok := m.as(ctx).(admission.ValidationInterface); ok {
		return p.Validate(ctx, a, o) //nolint:wrapcheck // It is the plugin.
	}
	return nil
}
