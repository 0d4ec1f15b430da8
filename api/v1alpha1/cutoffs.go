package v1alpha1

// Cutoffs say which nodes are in steps that take them by number: count, percent and ramp. A step takes nodes in an
// order that follows from their names alone.
type Cutoffs struct {
	// PolicyGeneration is the generation of the policy that the steps are of.
	PolicyGeneration int64 `json:"policyGeneration"`
	// Steps are the steps up to that which began last, one entry for each value of the label that a wave spreads over.
	// What is not named has no node.
	// +optional
	// +listType=atomic
	Steps []StepCutoff `json:"steps,omitempty"`
	// Incomplete tells that there would be more than 1000 entries, and there are none.
	// +optional
	Incomplete bool `json:"incomplete,omitempty"`
}

// StepCutoff is where a step ends.
type StepCutoff struct {
	// Step is the step's name.
	Step string `json:"step"`
	// Value is that of the label that the wave spreads over; "" for nodes without, or where it spreads over none.
	// +optional
	Value string `json:"value,omitempty"`
	// Last is the name of the last node that is in the step.
	Last string `json:"last"`
}
