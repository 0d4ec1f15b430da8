// Package added attacks the cluster by what others may add to its API: servers of
// others that lie, hang or never end, conversion webhooks of the same kind, and
// definitions that would cost much or take the place of what is there.
//
// The hostile server is in a pod: the API server reaches it through the agent of its
// node, as it does in a cluster without routes to pods.
package added
