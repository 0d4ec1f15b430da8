package authn

import (
	"crypto/x509"
	"errors"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/everynode/everynode/internal/pki"
)

var errForAgents = errors.New("this certificate is for calls to agents, and nobody's in the API")

// userOfCertificate is who shows a verified client certificate. What the API server
// shows to agents goes through many hands, so it opens nothing else.
//
// refuse says why a certificate in order is refused all the same; nil refuses none.
func userOfCertificate(refuse func(*x509.Certificate) error) x509request.UserConversionFunc {
	return func(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
		if chain[0].Subject.CommonName == pki.KubeletClientUser {
			return nil, false, errForAgents
		}
		if refuse != nil {
			if err := refuse(chain[0]); err != nil {
				return nil, false, err
			}
		}
		return x509request.CommonNameUserConversion(chain)
	}
}
