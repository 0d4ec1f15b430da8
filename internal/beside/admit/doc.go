// Package admit decides what becomes of writes that pass a webhook beside Kubernetes' own DaemonSet controller: what a
// pod that is created for a DaemonSet must look like, how a DaemonSet that follows a policy is stored, and whether a
// DaemonSet can be given back as its author wrote it.
//
// kube-controller-manager makes pods of the newest template only. Of a pod whose node is to have another revision, Pod
// makes the one that kube-controller-manager would have made of that revision; what other admission had added is taken
// off, for it was added for the other template, and the API server's own plug-ins run again after a change. Placement
// (nodeName, nodeSelector, affinity, tolerations, schedulerName) stays that of the revision for which the pod was made,
// because kube-controller-manager has chosen the node by it.
//
// Objects are read as JSON and not as Go types: fields of an API that is newer than this program stay.
package admit
