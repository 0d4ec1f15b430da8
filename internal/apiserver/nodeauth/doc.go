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
// Which objects a node's pods use is computed from a list of these pods, kept for
// a minute. What the kept list does not hold is looked up again before a request
// is denied, so a node is never refused what a pod that it has just got needs. No
// copy of all pods is held for this.
package nodeauth
