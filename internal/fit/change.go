package fit

// Change says what of a node became different, as a set of bits.
type Change uint8

// The changes that may let a waiting pod fit.
const (
	NodeAdded Change = 1 << iota
	AllocatableChanged
	LabelsChanged
	// TaintsChanged covers taints and the unschedulable flag.
	TaintsChanged
	// PodRemoved: a pod left the node or stopped using it.
	PodRemoved
	// PodAdded: a pod came to the node, which helps those that want to be near it.
	PodAdded
	// VolumesChanged: there is another volume, or somebody who makes one.
	VolumesChanged
	// DevicesChanged: there are other devices, or some are free again.
	DevicesChanged
)
