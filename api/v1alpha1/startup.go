package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeStartup says which daemons a new node starts, in which order, before ordinary pods are placed on it.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type NodeStartup struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The name has 60 characters at most: it is in the taint of nodes that start.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what people write: which nodes, which daemons, in which order.
	// +optional
	Spec NodeStartupSpec `json:"spec"`
	// Status is written by the node startup controller.
	// +optional
	Status NodeStartupStatus `json:"status,omitempty"`
}

// NodeStartupList is a list of NodeStartups.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type NodeStartupList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the NodeStartups.
	Items []NodeStartup `json:"items"`
}

// NodeStartupSpec is what people write.
type NodeStartupSpec struct {
	// Nodes chooses nodes by the labels that they have when they join; empty chooses all. Of several NodeStartups that
	// choose a node it follows the one whose name sorts first. Nodes that are there already stay as they are.
	// +optional
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`
	// Groups are started one after the other on each node, from 1 to 20.
	// +optional
	// +listType=atomic
	Groups []StartupGroup `json:"groups,omitempty"`
	// Gate says what keeps ordinary pods off a node until all groups have started. Join, the default, closes the node in
	// the write that creates it. None starts the groups in order and lets ordinary pods be placed meanwhile.
	// +optional
	// +default="Join"
	Gate StartupGate `json:"gate,omitempty"`
}

// StartupGate says what keeps ordinary pods off a node that starts.
type StartupGate string

// The gates.
const (
	GateJoin StartupGate = "Join"
	GateNone StartupGate = "None"
)

// StartupGroup are daemons that a node starts together.
type StartupGroup struct {
	// DaemonSets are those whose daemons must be available on the node before the next group starts, from 1 to 20. One
	// that does not run on a node is not waited for there; one that does not exist is.
	// +optional
	// +listType=atomic
	DaemonSets []StartupDaemonSet `json:"daemonSets,omitempty"`
	// Timeout is how long the group may take on a node; empty for as long as it takes.
	// +optional
	Timeout Duration `json:"timeout,omitempty"`
	// Then says what happens after the timeout. Wait, the default, goes on waiting and says so. Open goes on without the
	// daemons of the group that are not available: to the next group, or the node opens.
	// +optional
	// +default="Wait"
	Then StartupThen `json:"then,omitempty"`
}

// StartupThen says what happens after the timeout of a group.
type StartupThen string

// What happens after the timeout of a group.
const (
	ThenWait StartupThen = "Wait"
	ThenOpen StartupThen = "Open"
)

// StartupDaemonSet names a DaemonSet.
type StartupDaemonSet struct {
	// Namespace of the DaemonSet.
	Namespace string `json:"namespace"`
	// Name of the DaemonSet.
	Name string `json:"name"`
}

// NodeStartupStatus is how the nodes are. It does not grow with their number.
type NodeStartupStatus struct {
	// ObservedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MatchedNodes is how many nodes the spec chooses by their labels of now.
	// +optional
	MatchedNodes int32 `json:"matchedNodes,omitempty"`
	// StartingNodes is how many nodes follow it and have not started all groups.
	// +optional
	StartingNodes int32 `json:"startingNodes,omitempty"`
	// OpenNodes is how many of the matched nodes are not starting, those included that were there before.
	// +optional
	OpenNodes int32 `json:"openNodes,omitempty"`
	// OpenedByTimeout is how many nodes there are on which it went on without a daemon.
	// +optional
	OpenedByTimeout int32 `json:"openedByTimeout,omitempty"`
	// Conditions tell what stands in the way.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
