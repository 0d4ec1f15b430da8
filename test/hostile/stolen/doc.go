// Package stolen plays what somebody does who has got hold of a credential: the
// certificate of a node, of a node that has no object, a daemon's token, a join
// token, or nothing at all. What kube-apiserver answered to the same requests is
// in testdata; rules that are more general stand in tables.
//
// One API server without control loops answers all of them, over TLS. Nothing that
// is asked changes anything: whatever writes is a dry run.
package stolen
