// Package staticpods reads the pods that a node runs on its own account from a folder of manifests, and decides how the
// API shows them.
//
// A static pod belongs to its file: it runs as long as the file is there, with or without a control plane. The API gets
// a mirror of it, a pod of the same name that runs nowhere and carries the static pod's hash; whoever deletes the
// mirror changes nothing on the node.
//
//	folder ──► Folder ──► Parse ──► pods, by hash ──► the node's workers
//	                                     │
//	                    mirrors in API ──┴──► Plan ──► create, delete mirrors
//
// A pod's UID is a hash of the node, the file's path and what the file says, so an edited file is another pod: the old
// one is stopped before the new one starts. A file that cannot be used is reported, and the pod that it described
// before runs on.
package staticpods
