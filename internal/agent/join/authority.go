package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki"
)

// fetchAuthority asks the server for its certificate chain, without showing it anything, and returns the CA with the
// given hash, PEM encoded. An unreachable server is tried again until patience is over.
func fetchAuthority(ctx context.Context, server *url.URL, caHash string, patience time.Duration,
	clock clock.Clock) ([]byte, error) {
	deadline := clock.Now().Add(patience)
	for first := true; ; first = false {
		chain, err := fetchChain(ctx, server)
		if err == nil {
			ca, err := findAuthority(chain, server.Hostname(), caHash, clock.Now())
			if err != nil {
				return nil, fmt.Errorf("server %s: %w", server, err)
			}
			return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), nil
		}
		if ctx.Err() != nil || !clock.Now().Before(deadline) {
			return nil, fmt.Errorf("cannot reach the server at %s: %w", server, rootCause(err))
		}
		if first {
			klog.FromContext(ctx).Info("Waiting for the server", "server", server.String(), "err", err)
		}
		select {
		case <-ctx.Done():
		case <-clock.After(time.Second):
		}
	}
}

// fetchChain does one request to the server, with no credentials in it, to see its certificates.
func fetchChain(ctx context.Context, server *url.URL) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, // findAuthority verifies, against the hash that the token brought.
			VerifyConnection: func(state tls.ConnectionState) error {
				chain = state.PeerCertificates
				return nil
			},
		},
		DisableKeepAlives: true,
	}
	client := &http.Client{
		Transport:     transport,
		Timeout:       10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.JoinPath("version").String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	if len(chain) == 0 {
		return nil, errors.New("the server shows no certificate")
	}
	return chain, nil
}

// findAuthority picks the CA with the given hash out of a server's chain and verifies the server's own certificate
// against it.
func findAuthority(chain []*x509.Certificate, host, caHash string, now time.Time) (*x509.Certificate, error) {
	var ca *x509.Certificate
	for _, cert := range chain {
		if pki.HashOf(cert) == caHash {
			ca = cert
		}
	}
	if ca == nil {
		return nil, errors.New("its CA is not the one that the join token names: wrong server, or a token of another cluster")
	}
	for _, cert := range []*x509.Certificate{ca, chain[0]} {
		if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
			return nil, fmt.Errorf("its certificate is valid from %s to %s, but this machine's clock says %s: set the clock",
				cert.NotBefore.Format(time.RFC3339), cert.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339))
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	between := x509.NewCertPool() // while an authority is being replaced, the old one certifies the new one
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: between,
		DNSName:       host,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("its certificate cannot be trusted: %w", err)
	}
	return ca, nil
}

// rootCause drops the URL that net/http repeats in its errors.
func rootCause(err error) error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}
