package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// NodeUserPrefix begins the user name of a node.
const NodeUserPrefix = "system:node:"

// NodeClientTLS is how the API server calls nodes' agents. It shows the certificate
// of KubeletClientUser and takes nothing but the serving certificate of the node
// that is the ServerName: one of the nodes' CA for that name. What the cluster's
// own CA signed for the node before there was a nodes' CA is still taken until it
// ends. It follows changes of keys.
func (b *Bundle) NodeClientTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return b.state.Load().leaves[kubeletClientName].tls(), nil
		},
		InsecureSkipVerify: true, //nolint:gosec // verifyNode verifies, against authorities that may change.
		VerifyConnection: func(connection tls.ConnectionState) error {
			return verifyNode(b.state.Load(), connection.PeerCertificates, connection.ServerName, b.opts.Clock.Now())
		},
	}
}

func verifyNode(s *state, chain []*x509.Certificate, node string, now time.Time) error {
	if len(chain) == 0 || node == "" {
		return errors.New("the agent shows no certificate, or no node is named")
	}
	shown := chain[0]
	if shown.Subject.CommonName != NodeUserPrefix+node {
		return fmt.Errorf("the agent shows the certificate of %q, not of node %s", shown.Subject.CommonName, node)
	}
	options := x509.VerifyOptions{
		Roots: s.nodes.pool(), Intermediates: x509.NewCertPool(), DNSName: node, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, cert := range chain[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := shown.Verify(options)
	if err == nil {
		return nil
	}
	if s.beforeNodeAuthority(shown) {
		options.Roots = s.cluster.pool()
		if _, old := shown.Verify(options); old == nil {
			return nil
		}
	}
	return fmt.Errorf("the serving certificate of node %s is not of the nodes' CA: %w", node, err)
}

// beforeNodeAuthority reports whether a certificate is older than the first nodes'
// CA. After that has been replaced for good nothing is.
func (s *state) beforeNodeAuthority(cert *x509.Certificate) bool {
	return slices.ContainsFunc(s.nodes.roots(), func(root *x509.Certificate) bool {
		return root.Subject.CommonName == nodeAuthorityName && cert.NotBefore.Before(root.NotBefore)
	})
}
