// Package rbac decides by roles and bindings who may do what.
//
//	informers of (Cluster)Role(Binding) -> Resolver: subject -> bindings -> rules
//	Resolver -> Authorizer   may this user do that?   (also: what may this user do?)
//	Resolver -> Escalation   may this user grant that? (checked when roles and bindings are written)
//
// A binding is found through an index by subject, so the cost of a decision
// depends on the bindings of the user and its groups, not on those of the cluster.
// Until the informers have synced requests wait here; members of system:masters,
// the informers' own client among them, are let in by another authorizer.
package rbac
