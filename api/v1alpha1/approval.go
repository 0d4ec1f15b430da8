package v1alpha1

// StepApproval approves a step of one change to one revision.
type StepApproval struct {
	// Revision is the revision that somebody looked at, status.targetRevision; for any other
	// the approval is void.
	Revision string `json:"revision"`
	// Digest is status.targetDigest of that revision; for a template with another the approval
	// is void.
	Digest string `json:"digest"`
	// Step is the step's name, or All, or WithoutPolicy.
	Step string `json:"step"`
	// Change is status.change of the change that somebody looked at; for any other the approval is void, also if that
	// is to the same revision. Without it, the approval is for the change that is under way when it is written: a retry
	// that is asked for is one. Who approves the same again for another change has to name it.
	// +optional
	Change int64 `json:"change,omitempty"`
}

// ApprovedPlacement is the annotation of a rollout that names the placement rules, by their hash, which may be written
// beside another DaemonSet controller: they hold at once, on every node.
const ApprovedPlacement = "everynode.io/approved-placement"

// AllSteps approves every step.
const AllSteps = "All"

// WithoutPolicy has a change go on as in Kubernetes whose policy went in its middle. It approves no step, and an
// approval of steps is no consent to it.
const WithoutPolicy = "WithoutPolicy"
