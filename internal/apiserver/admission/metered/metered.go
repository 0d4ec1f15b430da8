// Package metered has the answers of admission plugins counted and timed, but for writes through the inside door.
package metered

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"github.com/everynode/everynode/internal/apiserver/insidedoor"
)

// metered is a plugin whose answers to requests are counted and timed one by one. Writes
// through the inside door come by the thousand, pass two dozen plugins that have nothing to
// say of most of them, and would spend more on the counting than on the plugins.
type metered struct {
	admission.Interface
	counting admission.Interface
	// configured reports whether anybody configured admission; nil where it does not matter.
	configured func() bool
}

// asking are the plugins that ask what somebody configured.
var asking = []string{
	mutating.PluginName, validating.PluginName, mutatingpolicy.PluginName, validatingpolicy.PluginName,
}

// Decorator meters plugins. The function reports whether anybody configured admission. The plugins that ask webhooks
// and policies make timers, and one copies each object, also where there is nobody to ask.
func Decorator(configured func() bool) admission.DecoratorFunc {
	return func(plugin admission.Interface, name string) admission.Interface {
		m := metered{Interface: plugin, counting: admissionmetrics.WithControllerMetrics(plugin, name)}
		if slices.Contains(asking, name) {
			m.configured = configured
		}
		return m
	}
}

func (m metered) as(ctx context.Context) admission.Interface {
	if insidedoor.Inside(ctx) {
		return m.Interface
	}
	return m.counting
}

// idle says that the plugin would find nobody to ask.
func (m metered) idle(ctx context.Context) bool {
	return m.configured != nil && insidedoor.Inside(ctx) && !m.configured()
}

// Admit implements admission.MutationInterface.
func (m metered) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if m.idle(ctx) {
		return nil
	}
	if p, ok := m.as(ctx).(admission.MutationInterface); ok {
		return p.Admit(ctx, a, o) //nolint:wrapcheck // It is the plugin.
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (m metered) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if m.idle(ctx) {
		return nil
	}
	if p, ok := m.as(ctx).(admission.ValidationInterface); ok {
		return p.Validate(ctx, a, o) //nolint:wrapcheck // It is the plugin.
	}
	return nil
}
