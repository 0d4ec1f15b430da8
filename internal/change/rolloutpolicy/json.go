package rolloutpolicy

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// MarshalJSON writes the spec that the policy was compiled from.
func (p *Policy) MarshalJSON() ([]byte, error) { return json.Marshal(p.spec) }

// UnmarshalJSON compiles a spec that MarshalJSON has written, for what replays a
// recording. Time zones are those of this machine.
func (p *Policy) UnmarshalJSON(raw []byte) error {
	var spec v1alpha1.RolloutPolicySpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return fmt.Errorf("read the spec of a policy: %w", err)
	}
	out, err := Compile(&spec, time.LoadLocation)
	if err != nil {
		return fmt.Errorf("compile the spec of a policy: %w", err)
	}
	*p = *out
	return nil
}
