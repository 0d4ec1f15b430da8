package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutPolicy says how changes of the DaemonSets of its namespace travel over
// the nodes.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RolloutPolicySpec   `json:"spec"`
	Status RolloutPolicyStatus `json:"status,omitempty"`
}

// RolloutPolicyList is a list of RolloutPolicies.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RolloutPolicy `json:"items"`
}

// RolloutPolicySpec is what people write.
type RolloutPolicySpec struct {
	// Selector chooses DaemonSets of the namespace by their labels; empty chooses
	// all. Of several policies that choose one DaemonSet the oldest counts.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Waves are taken one after the other. A node belongs to the first that takes
	// it; the nodes that none takes are the last wave, named "rest".
	Waves []Wave `json:"waves,omitempty"`
	// Domains limit at all times how many nodes that fail together are without an
	// available daemon.
	Domains []Domain `json:"domains,omitempty"`
	// Failure says when a revision has failed.
	Failure Failure `json:"failure,omitempty"`
	// NodeFaults says how much of the fleet may be out of order by itself.
	NodeFaults NodeFaults `json:"nodeFaults,omitempty"`
	// Windows are the times in which a node's change may begin; none means always.
	Windows []Window `json:"windows,omitempty"`
	// Pace limits how fast nodes' changes begin, over all DaemonSets of the policy.
	Pace Pace `json:"pace,omitempty"`
}

// Wave is a part of the fleet. Exactly one of Nodes, Count, Percent and Each says
// which.
type Wave struct {
	// Name is a DNS label, and unlike that of the other waves.
	Name string `json:"name"`
	// Nodes takes the nodes with these labels.
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`
	// Count takes so many nodes, the same each time while the fleet stays the same.
	Count *int32 `json:"count,omitempty"`
	// Percent takes so many of a hundred nodes, rounded up.
	Percent *int32 `json:"percent,omitempty"`
	// SpreadBy is a node label. Count and Percent then take nodes of each of its
	// values: Percent so many of each, Count in turn until there are enough.
	SpreadBy string `json:"spreadBy,omitempty"`
	// Each is a node label: the wave has a step for each of its values, in their
	// order, and a last one for nodes without it.
	Each string `json:"each,omitempty"`
	// MaxUnavailable stands in place of the DaemonSet's own limit while the step is
	// under way: a number of nodes, or a percentage of the step's, rounded up.
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Soak is how long each node's daemon must have been available before the next
	// step begins.
	Soak *metav1.Duration `json:"soak,omitempty"`
	// Approval says who decides that the next step begins: Automatic (the default)
	// or Manual.
	Approval Approval `json:"approval,omitempty"`
}

// Approval says who lets the next step begin.
type Approval string

// The approvals.
const (
	ApprovalAutomatic Approval = "Automatic"
	ApprovalManual    Approval = "Manual"
)

// Domain is a set of nodes that fail together: those with the same value of a label.
type Domain struct {
	// Key is the node label. A node without it is in no domain.
	Key string `json:"key"`
	// MaxUnavailable is how many nodes of one value may be without an available
	// daemon when a change begins there: a number of nodes, or a percentage of the
	// value's, rounded up.
	MaxUnavailable intstr.IntOrString `json:"maxUnavailable"`
}

// Failure says when a revision has failed, and what happens then.
type Failure struct {
	// Max is how many nodes may fail: a number, or a percentage of the nodes that
	// have been given the revision. Default 5%.
	Max *intstr.IntOrString `json:"max,omitempty"`
	// Min is how many nodes must have failed at least. Default 1.
	Min *int32 `json:"min,omitempty"`
	// StartDeadline is how long a daemon may take from being bound to its node to
	// being ready. Default 10m.
	StartDeadline *metav1.Duration `json:"startDeadline,omitempty"`
	// Restarts is how often a container may restart while its node soaks, or starts,
	// before the node counts as failed. Default 3.
	Restarts *int32 `json:"restarts,omitempty"`
	// Then is what happens when the limit is passed: Halt (the default) stops where
	// it is, Rollback takes all nodes back to the stable revision.
	Then FailureAction `json:"then,omitempty"`
}

// FailureAction is what happens to a rollout that has failed.
type FailureAction string

// The actions.
const (
	FailureHalt     FailureAction = "Halt"
	FailureRollback FailureAction = "Rollback"
)

// NodeFaults limits how much of the fleet may be out of order while changes begin.
type NodeFaults struct {
	// Max is a number of nodes or a percentage of the selected ones; with more
	// nothing new begins. Default 20%.
	Max *intstr.IntOrString `json:"max,omitempty"`
}

// Window is a time of the week in which changes may begin. One whose end is not
// after its beginning goes on into the next day.
type Window struct {
	// Days are Mon, Tue, Wed, Thu, Fri, Sat and Sun; none means all.
	Days []string `json:"days,omitempty"`
	// From and To are times of day such as 09:00; To may be 24:00.
	From string `json:"from"`
	To   string `json:"to"`
	// TimeZone is a name of the IANA time zone database. Default UTC.
	TimeZone string `json:"timeZone,omitempty"`
}

// Pace limits how fast changes begin.
type Pace struct {
	// NodesPerMinute is how many nodes' changes may begin in a minute; none means
	// no limit.
	NodesPerMinute *int32 `json:"nodesPerMinute,omitempty"`
}

// RolloutPolicyStatus is written by the controller.
type RolloutPolicyStatus struct {
	// ObservedGeneration is the generation of the spec that the status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Matched are names of the DaemonSets that follow the policy, 20 at most, and
	// MatchedCount is how many they are.
	Matched      []string `json:"matched,omitempty"`
	MatchedCount int32    `json:"matchedCount,omitempty"`
	// Conditions tell whether the policy can be followed.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
