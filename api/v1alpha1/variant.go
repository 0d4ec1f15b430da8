package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DaemonSetVariant says how the pods of DaemonSets of its namespace differ on some nodes, such as large ones.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DaemonSetVariant struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what people write: which DaemonSets, which nodes, and what differs there.
	// +optional
	Spec DaemonSetVariantSpec `json:"spec"`
	// Status is written by the DaemonSet controller.
	// +optional
	Status DaemonSetVariantStatus `json:"status,omitempty"`
}

// DaemonSetVariantList is a list of DaemonSetVariants.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DaemonSetVariantList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the variants.
	Items []DaemonSetVariant `json:"items"`
}

// DaemonSetVariantSpec is what people write.
type DaemonSetVariantSpec struct {
	// DaemonSets chooses DaemonSets of the namespace by their labels; empty chooses all.
	// +optional
	DaemonSets *metav1.LabelSelector `json:"daemonSets,omitempty"`
	// Nodes chooses nodes by their labels; empty chooses all.
	// +optional
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`
	// Priority decides between variants that choose one node for one DaemonSet: the one with the highest applies, alone.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Patch is a strategic merge patch of the pod template. It leaves the template's labels and placement alone:
	// nodeSelector, affinity, tolerations, schedulerName, nodeName, schedulingGates and topologySpreadConstraints.
	// +optional
	Patch *runtime.RawExtension `json:"patch,omitempty"`
	// Resources are formulas of what containers request, and may use at most, by the container's name. They come after
	// the patch.
	// +optional
	Resources map[string]VariantResources `json:"resources,omitempty"`
}

// VariantResources are formulas for one container: CEL expressions over the variable node, with the result in cores
// for cpu and in bytes for memory and ephemeral-storage. What comes out is rounded up to 10m of cpu, and to 16Mi.
type VariantResources struct {
	// Requests are formulas of what the container requests: of cpu, memory and ephemeral-storage.
	// +optional
	Requests map[corev1.ResourceName]string `json:"requests,omitempty"`
	// Limits are formulas of what it may use at most.
	// +optional
	Limits map[corev1.ResourceName]string `json:"limits,omitempty"`
}

// DaemonSetVariantStatus is where the variant applies. It does not grow with the number of nodes.
type DaemonSetVariantStatus struct {
	// ObservedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// DaemonSets is how many DaemonSets it chooses.
	// +optional
	DaemonSets int32 `json:"daemonSets,omitempty"`
	// Nodes is how many nodes it applies to, counted once for each DaemonSet.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// Conditions tell what stands in the way.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VariantConflict is the condition of a variant that has the priority of another one which chooses the same nodes.
const VariantConflict = "Conflict"

// VariantApplies is the condition of a variant: True where all its nodes have it or can have it.
const VariantApplies = "Applies"
