// Package join gives a node its identity: a client certificate as system:node:NAME and a serving certificate.
//
// The first time, Join checks that the server's CA is the one that the join token names, and only then sends the token,
// with a certificate signing request. Later starts use the stored files and need neither token nor server. Identity.Run
// asks for the serving certificate and renews both before they end.
//
// Files in <DataDir>/pki, each replaced as a whole, mode 0600: ca.crt, client.pem and serving.pem (certificate and key
// together, so that they always fit), kubeconfig, which names the first two, and
// servers.json, where the API servers are.
package join
