// Package reviews answers questions about identity and permission: the kinds of
// authorization.k8s.io/v1 and authentication.k8s.io/v1. Nothing is stored; a
// review is created, answered in its status, and forgotten.
package reviews
