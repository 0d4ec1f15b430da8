package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DaemonSetRollout says where the change of the DaemonSet of the same name is. The
// controller makes it; people pause, approve and retry through its spec.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DaemonSetRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DaemonSetRolloutSpec   `json:"spec,omitempty"`
	Status DaemonSetRolloutStatus `json:"status,omitempty"`
}

// DaemonSetRolloutList is a list of DaemonSetRollouts.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DaemonSetRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DaemonSetRollout `json:"items"`
}

// DaemonSetRolloutSpec is what people may write.
type DaemonSetRolloutSpec struct {
	// Paused lets nothing new begin.
	Paused bool `json:"paused,omitempty"`
	// Approved lets the step after the named one begin.
	Approved *StepApproval `json:"approved,omitempty"`
	// Retry tries a failed revision again whenever its count grows.
	Retry *Retry `json:"retry,omitempty"`
	// Target is Newest (the default), or Stable to abort: all nodes go back to the
	// stable revision. The template's next change ends that.
	Target Target `json:"target,omitempty"`
}

// StepApproval approves a step of one revision.
type StepApproval struct {
	// Revision is the revision that somebody looked at; for any other the approval
	// is void.
	Revision string `json:"revision"`
	// Step is the step's name, or All.
	Step string `json:"step"`
}

// AllSteps approves every step.
const AllSteps = "All"

// Retry tries a failed revision again.
type Retry struct {
	Revision string `json:"revision"`
	Count    int32  `json:"count"`
}

// Target is which revision a rollout leads to.
type Target string

// The targets.
const (
	TargetNewest Target = "Newest"
	TargetStable Target = "Stable"
)

// Phase is what a rollout does.
type Phase string

// The phases.
const (
	// PhaseComplete: every node that can has the target, and has soaked.
	PhaseComplete Phase = "Complete"
	// PhaseProgressing: nodes are being changed.
	PhaseProgressing Phase = "Progressing"
	// PhaseSoaking: the step's nodes are changed, and are being watched.
	PhaseSoaking Phase = "Soaking"
	// PhaseWaitingForApproval: the next step begins when somebody approves.
	PhaseWaitingForApproval Phase = "WaitingForApproval"
	// PhaseOutsideWindow: the next change begins in a window.
	PhaseOutsideWindow Phase = "OutsideWindow"
	// PhasePaused: somebody has stopped it, or the policy cannot be followed.
	PhasePaused Phase = "Paused"
	// PhaseHalted: the revision has failed, and its nodes stay as they are.
	PhaseHalted Phase = "Halted"
	// PhaseRolledBack: the revision has failed, and its nodes go back.
	PhaseRolledBack Phase = "RolledBack"
)

// DaemonSetRolloutStatus is where the change is. It does not grow with the fleet.
type DaemonSetRolloutStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase and Message say what the rollout does, and why.
	Phase   Phase  `json:"phase,omitempty"`
	Message string `json:"message,omitempty"`
	// StableRevision is the last one that was complete without failing, and
	// TargetRevision the one that nodes are led to.
	StableRevision string `json:"stableRevision,omitempty"`
	TargetRevision string `json:"targetRevision,omitempty"`
	// FailedRevisions are the last ten that failed, the newest last.
	FailedRevisions []FailedRevision `json:"failedRevisions,omitempty"`
	// Step is the name of the furthest step that has begun, and StepStarted when it
	// did.
	Step        string       `json:"step,omitempty"`
	StepStarted *metav1.Time `json:"stepStarted,omitempty"`
	// Steps are all steps of the policy, as the fleet is now.
	Steps []StepStatus `json:"steps,omitempty"`
	// Counts says how many nodes there are of each verdict.
	Counts map[string]int32 `json:"counts,omitempty"`
	// Failures is the evidence against the target revision.
	Failures *Failures `json:"failures,omitempty"`
	// Conditions are for tools that wait.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FailedRevision is a revision that is not tried again by itself.
type FailedRevision struct {
	// Revision is the hash of the template.
	Revision string `json:"revision"`
	// Why says what happened, for people.
	Why string `json:"why"`
	// Nodes are at most three on which it did.
	Nodes []string `json:"nodes,omitempty"`
	// Time is when the limit was passed.
	Time metav1.Time `json:"time"`
	// Action is what followed.
	Action FailureAction `json:"action"`
	// Retries is the last count of spec.retry that was followed.
	Retries int32 `json:"retries,omitempty"`
}

// StepStatus is where one step is.
type StepStatus struct {
	Name string `json:"name"`
	// Nodes are those of the step. Done are those with the target that have soaked,
	// Failed those on which it failed, Unavailable those without an available daemon.
	Nodes       int32 `json:"nodes"`
	Done        int32 `json:"done"`
	Failed      int32 `json:"failed,omitempty"`
	Unavailable int32 `json:"unavailable,omitempty"`
}

// Failures is the evidence against a revision: it stays when pods are deleted.
type Failures struct {
	Revision string `json:"revision"`
	// Nodes are the names of up to 200 nodes on which the revision fails.
	Nodes []string `json:"nodes,omitempty"`
	// More counts failures beyond those.
	More int32 `json:"more,omitempty"`
}
