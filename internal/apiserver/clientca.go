package apiserver

import (
	"crypto/x509"

	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/everynode/everynode/internal/pki"
)

// clientCA tells the library which authorities of client certificates are trusted now.
type clientCA struct{ pki *pki.Bundle }

var _ dynamiccertificates.CAContentProvider = clientCA{}

// Name implements dynamiccertificates.CAContentProvider.
func (c clientCA) Name() string { return "client-ca" }

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (c clientCA) CurrentCABundleContent() []byte { return c.pki.CAPEM() }

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (c clientCA) VerifyOptions() (x509.VerifyOptions, bool) {
	options := x509request.DefaultVerifyOptions()
	options.Roots = c.pki.CAPool()
	return options, true
}

// AddListener implements dynamiccertificates.CAContentProvider.
func (c clientCA) AddListener(listener dynamiccertificates.Listener) {
	c.pki.OnChange(listener.Enqueue)
}
