// Package csi is the node's side of storage drivers that speak the Container Storage Interface: which drivers the node
// has, in its CSINode and in an annotation of its Node, and the volumes that pods ask them for themselves.
//
// A volume that a pod asks for lives as long as the pod. What was asked for is on disk beside the volume before the
// driver is called, so an agent that starts again can give it back. There is a connection to a driver only while it
// is called.
package csi
