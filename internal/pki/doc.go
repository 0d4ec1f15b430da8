// Package pki owns the cluster's keys and certificates: it creates them in one
// directory, finds them again at the next start, issues the server's own
// certificates anew before they run out, and signs certificate requests.
//
// The directory holds, each file readable by its owner only:
//
//	ca.crt, ca.key                     the cluster's certificate authority, ten years
//	apiserver.crt, apiserver.key       what the API server shows; the file holds leaf and CA
//	admin.crt, admin.key               user kubernetes-admin in group system:masters
//	apiserver-kubelet-client.crt, .key what the API server shows to a node's agent
//	service-account.key                signs service account tokens
//
// Invariants: a file that exists and cannot be understood is reported and never
// replaced; a key, once written, is kept for good, so that a certificate is
// renewed by replacing exactly one file; every file appears whole or not at all.
package pki
