package doctor

import (
	"context"

	"github.com/everynode/everynode/internal/beside/opening"
	"github.com/everynode/everynode/internal/doctor/diagnosis"
)

// startupPolicies looks for policies by which the API server closes nodes itself, and for a binding of each: that of
// its own name, if there is one.
func (l *looker) startupPolicies(ctx context.Context) error {
	found, err := opening.Policies(ctx, l.client)
	if err != nil {
		return err
	}
	for _, p := range found {
		is := diagnosis.StartupPolicy{Version: p.Version, Name: p.Name, Policy: p.Is}
		for _, b := range p.Bindings {
			if is.Binding == nil || b.Name == p.Name {
				is.Binding = b
			}
		}
		l.seen.StartupPolicies = append(l.seen.StartupPolicies, is)
	}
	return nil
}
