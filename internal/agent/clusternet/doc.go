// Package clusternet puts together what connects a node's pods with the rest of the cluster: the pod network, Services,
// and the answers for names. Each may be left to somebody else.
package clusternet
