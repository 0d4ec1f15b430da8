// Package authn finds out who sends a request.
//
//	client certificate of the cluster's CA    user = CommonName, groups = Organizations
//	service account token (JWT, ES256)        user = system:serviceaccount:NAMESPACE:NAME
//	bootstrap token (ID.SECRET)               user = system:bootstrap:ID, group system:bootstrappers
//	none of them                              user = system:anonymous
//
// Service account tokens are issued through TokenREST and are bound to the
// account's UID and, if asked for, to a pod, secret or node: when that is
// deleted, the token is void. There are no tokens without an end.
//
// A join token, ID.SECRET.CAHASH, is a bootstrap token together with the hash of
// the cluster's CA, so that a joining node can trust the server before it sends
// the secret.
package authn
