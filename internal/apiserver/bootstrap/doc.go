// Package bootstrap holds the objects that every cluster has from its first
// moment: namespaces, priority classes, and the default roles and bindings, under
// the names that existing tools expect.
//
// The objects are plain data; Ensure creates what is missing and brings default
// roles and bindings up to date. What users have added to them stays. A role or
// binding with the annotation rbac.authorization.kubernetes.io/autoupdate=false
// is left alone.
package bootstrap
