package join

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/util/connrotation"
)

// newTransport is the node's way to the server. It shows the certificate and trusts the authorities that the node has
// at each moment; renew lets what is open begin again with them.
func (id *Identity) newTransport() (transport http.RoundTripper, renew func()) {
	dialer := connrotation.NewDialer(id.servers.dial)
	direct := utilnet.SetTransportDefaults(&http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, // verifyServer verifies, against authorities that may change.
			VerifyConnection:   id.verifyServer,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if pair := id.client.Load(); pair != nil {
					return pair, nil
				}
				return &tls.Certificate{}, nil // shows nothing
			},
		},
	})
	return watched{direct, id.servers, dialer.CloseAll}, dialer.CloseAll
}

// anyServer is a name that the certificate of each API server is for, and nobody else's.
const anyServer = "kubernetes.default.svc"

// verifyServer is what a TLS client does by itself when its authorities are known for good.
func (id *Identity) verifyServer(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server shows no certificate")
	}
	options := x509.VerifyOptions{
		Roots: id.CAPool(), Intermediates: x509.NewCertPool(), DNSName: id.server.Hostname(),
		CurrentTime: id.timeFor(state.PeerCertificates[0]),
	}
	for _, cert := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	var other x509.HostnameError
	if errors.As(err, &other) {
		// It may be another server than that of the configuration.
		options.DNSName = anyServer
		if _, of := state.PeerCertificates[0].Verify(options); of == nil {
			err = nil
		}
	}
	if err == nil {
		id.believed(state.PeerCertificates[0])
	}
	return err
}
