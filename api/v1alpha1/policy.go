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
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what people write: which DaemonSets, in which waves, within which limits.
	// +optional
	Spec RolloutPolicySpec `json:"spec"`
	// Status is written by the DaemonSet controller.
	// +optional
	Status RolloutPolicyStatus `json:"status,omitempty"`
}

// RolloutPolicyList is a list of RolloutPolicies.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the policies.
	Items []RolloutPolicy `json:"items"`
}

// RolloutPolicySpec is what people write.
type RolloutPolicySpec struct {
	// Selector chooses DaemonSets of the namespace by their labels; empty chooses
	// all. Of several policies that choose one DaemonSet the oldest counts.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Waves are taken one after the other. A node belongs to the first that takes
	// it; the nodes that none takes are the last wave, named "rest".
	// +optional
	// +listType=atomic
	Waves []Wave `json:"waves,omitempty"`
	// Domains limit at all times how many nodes that fail together are without an
	// available daemon.
	// +optional
	// +listType=map
	// +listMapKey=key
	Domains []Domain `json:"domains,omitempty"`
	// Failure says when a revision has failed.
	// +optional
	Failure Failure `json:"failure,omitempty"`
	// NodeFaults says how much of the fleet may be out of order by itself.
	// +optional
	NodeFaults NodeFaults `json:"nodeFaults,omitempty"`
	// Windows are the times in which a node's change may begin; none means always.
	// +optional
	// +listType=atomic
	Windows []Window `json:"windows,omitempty"`
	// Pace limits how fast nodes' changes begin, over all DaemonSets of the policy.
	// +optional
	Pace Pace `json:"pace,omitempty"`
	// Content makes the ConfigMaps and Secrets that a template names a part of its revision. Without
	// it their changes reach all nodes at once, as in Kubernetes.
	// +optional
	Content *Content `json:"content,omitempty"`
	// Images is AsWritten, as is the empty value: each node asks the registry for a tag by itself. Or Pinned: the
	// first node of a template asks, alone, and all others get the digest that it got.
	// +optional
	Images ImageResolution `json:"images,omitempty"`
}

// ImageResolution says who finds out what the tags of a template's images are.
//
// +enum
type ImageResolution string

// The resolutions.
const (
	ImagesAsWritten ImageResolution = "AsWritten"
	ImagesPinned    ImageResolution = "Pinned"
)

// Content says which objects belong to a revision. A revision has immutable copies of them, and its
// pods refer to the copies.
type Content struct {
	// ConfigMaps is Referenced (the default): those that the template names in volumes, envFrom and
	// valueFrom; or None.
	// +optional
	// +default="Referenced"
	ConfigMaps ContentScope `json:"configMaps,omitempty"`
	// Secrets is Referenced or None (the default).
	// +optional
	// +default="None"
	Secrets ContentScope `json:"secrets,omitempty"`
	// Apply is Restart (the default): a node gets another content with another pod; or Live: the volumes of its
	// pod show the other content, where that is all there is to change, and the pod stays.
	// +optional
	// +default="Restart"
	Apply ContentApply `json:"apply,omitempty"`
	// Settle is how long no object may have changed before the change is taken to be whole, and with Live how long
	// after its volumes show another content the pod is judged. Default 5s.
	// +optional
	// +default="5s"
	Settle Duration `json:"settle,omitempty"`
	// Exclude names objects whose changes must not wait, such as CA bundles and revocations.
	// +optional
	Exclude *ContentExclusion `json:"exclude,omitempty"`
}

// ContentScope says which objects of a kind are content.
//
// +enum
type ContentScope string

// The scopes.
const (
	// ContentReferenced takes what the template names.
	ContentReferenced ContentScope = "Referenced"
	// ContentNone takes nothing.
	ContentNone ContentScope = "None"
)

// ContentApply says how a node gets another content.
//
// +enum
type ContentApply string

// The ways to apply a content.
const (
	// ContentRestart replaces the pod.
	ContentRestart ContentApply = "Restart"
	// ContentLive has the pod's volumes show it.
	ContentLive ContentApply = "Live"
)

// ContentExclusion names objects that are no content: pods refer to them themselves.
type ContentExclusion struct {
	// Names are names of ConfigMaps and Secrets.
	// +optional
	// +listType=set
	Names []string `json:"names,omitempty"`
	// Selector chooses them by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Wave is a part of the fleet. Exactly one of Nodes, Count, Percent and Each says
// which.
type Wave struct {
	// Name is a DNS label, and unlike that of the other waves.
	Name string `json:"name"`
	// Nodes takes the nodes with these labels.
	// +optional
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`
	// Count takes so many nodes, the same each time while the fleet stays the same.
	// +optional
	Count *int32 `json:"count,omitempty"`
	// Percent takes so many of a hundred nodes, rounded up.
	// +optional
	Percent *int32 `json:"percent,omitempty"`
	// SpreadBy is a node label. Count and Percent then take nodes of each of its
	// values: Percent so many of each, Count in turn until there are enough.
	// +optional
	SpreadBy string `json:"spreadBy,omitempty"`
	// Each is a node label: the wave has a step for each of its values, in their
	// order, and a last one for nodes without it.
	// +optional
	Each string `json:"each,omitempty"`
	// Ramp, for a wave with nodes, has it make steps that grow: name/1, name/2 and so on. Each
	// soaks, and asks for approval, as a wave does.
	// +optional
	Ramp *Ramp `json:"ramp,omitempty"`
	// MaxUnavailable stands in place of the DaemonSet's own limit while the step is
	// under way: a number of nodes, or a percentage of the step's, rounded up.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Soak is how long each node's daemon must have been available before the next
	// step begins.
	// +optional
	Soak Duration `json:"soak,omitempty"`
	// Approval says who decides that the next step begins: Automatic (the default)
	// or Manual.
	// +optional
	// +default="Automatic"
	Approval Approval `json:"approval,omitempty"`
	// Fetch has the step's nodes pull the revision's images before any daemon is taken away from one of them, from when
	// all nodes of the step before are changed. A node that cannot have them keeps its daemon.
	// +optional
	Fetch bool `json:"fetch,omitempty"`
	// FetchDeadline is how long a node that was asked for that may say nothing, and others wait for it. Default 10m.
	// +optional
	FetchDeadline Duration `json:"fetchDeadline,omitempty"`
}

// Ramp says how the steps of a wave grow.
type Ramp struct {
	// From is how many nodes the first step has.
	// +optional
	// +default=1
	From *int32 `json:"from,omitempty"`
	// Factor is how many times as large as the one before each step is, at least 2. The twentieth
	// takes all that are left.
	// +optional
	// +default=2
	Factor *int32 `json:"factor,omitempty"`
}

// Duration is a length of time as people write it, such as 90s or 1h30m. It is kept as
// it was written, so that what is applied twice changes nothing.
type Duration string

// Approval says who lets the next step begin.
//
// +enum
type Approval string

// The approvals.
const (
	// ApprovalAutomatic begins the next step by itself.
	ApprovalAutomatic Approval = "Automatic"
	// ApprovalManual waits until somebody approves.
	ApprovalManual Approval = "Manual"
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
	// +optional
	// +default="5%"
	Max *intstr.IntOrString `json:"max,omitempty"`
	// Min is how many nodes must have failed at least. Default 1.
	// +optional
	// +default=1
	Min *int32 `json:"min,omitempty"`
	// StartDeadline is how long a daemon may take from being bound to its node to
	// being ready. Default 10m.
	// +optional
	// +default="10m"
	StartDeadline Duration `json:"startDeadline,omitempty"`
	// Restarts is how often a container may restart while its node soaks, or starts,
	// before the node counts as failed. Default 3.
	// +optional
	// +default=3
	Restarts *int32 `json:"restarts,omitempty"`
	// Then is what happens when the limit is passed: Halt (the default) stops where
	// it is, Rollback takes all nodes back to the stable revision.
	// +optional
	// +default="Halt"
	Then FailureAction `json:"then,omitempty"`
}

// FailureAction is what happens to a rollout that has failed.
//
// +enum
type FailureAction string

// The actions.
const (
	// FailureHalt stops where it is.
	FailureHalt FailureAction = "Halt"
	// FailureRollback takes all nodes back to the stable revision.
	FailureRollback FailureAction = "Rollback"
)

// NodeFaults limits how much of the fleet may be out of order while changes begin.
type NodeFaults struct {
	// Max is a number of nodes or a percentage of the selected ones; with more
	// nothing new begins. Default 20%.
	// +optional
	// +default="20%"
	Max *intstr.IntOrString `json:"max,omitempty"`
}

// Window is a time of the week in which changes may begin. One whose end is not
// after its beginning goes on into the next day.
type Window struct {
	// Days are Mon, Tue, Wed, Thu, Fri, Sat and Sun; none means all.
	// +optional
	// +listType=set
	Days []string `json:"days,omitempty"`
	// From is the time of day, such as 09:00, at which the window opens.
	From string `json:"from"`
	// To is the time of day at which the window closes; it may be 24:00.
	To string `json:"to"`
	// TimeZone is a name of the IANA time zone database. Default UTC.
	// +optional
	// +default="UTC"
	TimeZone string `json:"timeZone,omitempty"`
}

// Pace limits how fast changes begin.
type Pace struct {
	// NodesPerMinute is how many nodes' changes may begin in a minute; none means
	// no limit.
	// +optional
	NodesPerMinute *int32 `json:"nodesPerMinute,omitempty"`
}

// RolloutPolicyStatus is written by the controller.
type RolloutPolicyStatus struct {
	// ObservedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Matched are names of the DaemonSets that follow the policy, 20 at most.
	// +optional
	// +listType=atomic
	Matched []string `json:"matched,omitempty"`
	// MatchedCount is how many DaemonSets follow the policy.
	// +optional
	MatchedCount int32 `json:"matchedCount,omitempty"`
	// Conditions say whether the policy can be followed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
