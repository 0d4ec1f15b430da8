// Package cgroups makes the cgroups of a node's pods, and sets what they may use.
//
//	ROOT/kubepods                   all pods: what the node has for them together
//	ROOT/kubepods/podUID            a Guaranteed pod
//	ROOT/kubepods/burstable         the class of Burstable pods; these are below it
//	ROOT/kubepods/besteffort        the class of BestEffort pods
//
// Containers are below their pods; the container runtime puts them there. Who makes cgroups, the agent itself or
// systemd, is the runtime's choice: with the systemd driver the same cgroups are slices,
// kubepods.slice/kubepods-burstable.slice/..., and systemd makes them. Both work with cgroups of version 1 and 2.
// Reading and writing is left to the library that runc uses.
//
// layout.go and resources.go decide, and know nothing of the machine.
package cgroups
