// Package pki owns the cluster's keys and certificates: it creates them in one
// directory, finds them again at the next start, issues the server's own
// certificates again before they run out, replaces keys when it is told to, and
// signs certificate requests.
//
// The directory holds, each file readable by its owner only:
//
//	ca.crt, ca.key                     the cluster's certificate authority, ten years
//	node-ca.crt, node-ca.key           the authority of the nodes' serving certificates, which nothing
//	                                   but the API server's calls to agents trusts
//	apiserver.crt, apiserver.key       what the API server shows; the file holds leaf and CA
//	admin.crt, admin.key               user kubernetes-admin in group system:masters
//	apiserver-kubelet-client.crt, .key what the API server shows to a node's agent; good for nothing else
//	front-proxy-ca.crt, .key           the authority of what comes next
//	front-proxy-client.crt, .key       what the API server shows to API servers of others; this
//	                                   server itself takes neither for anybody
//	service-account.key                signs service account tokens
//
// While an authority or the key of service accounts is being replaced, there is
// also NAME-previous.crt (authorities that are still trusted, and the new one as
// the old one certifies it) or service-account-previous.pub (keys whose tokens are
// still accepted). NAME-next.* are parts of a change that is being written.
//
// Invariants: a file that exists and cannot be understood is reported and never
// replaced; every file appears whole or not at all; a pair of key and certificate
// is replaced so that a crash at any moment leaves the old pair or leads to the
// new one (steps.go).
package pki
