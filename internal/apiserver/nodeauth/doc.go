// Package nodeauth keeps a node to its own affairs: itself, its lease, the pods
// that are bound to it, and the secrets, config maps and service accounts that
// those pods use.
//
// It only takes away. What a node may do at all is written in the cluster role
// system:node; the Authorizer stands before the roles and denies what concerns
// others, and the Restriction, an admission plugin, looks at what an authorizer
// cannot see: the content of what a node writes.
//
//	request of system:node:NAME -> Authorizer: Deny, or no opinion -> roles -> Restriction
//
// Which objects a node's pods use is looked up in the watch cache of pods, which has
// them by node, at each request: what a pod used is closed to its node as soon as the
// pod is gone. Before a request is denied it is looked up as it surely is now, so a
// node is never refused what a pod that it has just got needs. No copy of all pods is
// held for this.
package nodeauth
