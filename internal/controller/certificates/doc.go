// Package certificates approves and signs certificate requests.
//
//	kubernetes.io/kube-apiserver-client-kubelet  a node's client certificate: approved when the requester may
//	                                             (nodes with a join token; a node for itself), then signed
//	kubernetes.io/kubelet-serving                a node's serving certificate: approved when the node itself asks
//	                                             and every name and address is one that its Node object reports,
//	                                             is not the control plane's, and no other node is it, or
//	                                             is older and reports it
//	kubernetes.io/kube-apiserver-client          a person's or program's client certificate: signed only after
//	                                             somebody has approved it
//
// The name of a node belongs to the key of the machine that joined under it first
// (package identity): a join token does not give it to another machine while there
// is a Node of that name. Who was revoked gets nothing for what it asked before.
//
// Serving certificates are signed by an authority of their own, that of nodes.
//
// Requests for other signers are left to others. A request that can never be
// signed gets the condition Failed, with the reason. Old requests are removed: an
// hour after they were answered, a day when nobody did.
//
// decide.go, claim.go, names.go and request.go decide, without a clock or a client;
// controller.go and records.go read and act.
package certificates
