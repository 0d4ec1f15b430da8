package authn

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// OtherIssuers accept tokens that others have issued, OpenID Connect's. Until ctx ends
// they ask each issuer for its keys; while one does not answer, its tokens are refused
// and all others work. None may call itself one of our own.
func OtherIssuers(ctx context.Context, issuers []apiserver.JWTAuthenticator,
	algorithms, own []string) (out []authenticator.Token, err error) {
	compiler := authenticationcel.NewDefaultCompiler()
	for _, issuer := range issuers {
		o := oidc.Options{
			JWTAuthenticator:     issuer,
			SupportedSigningAlgs: algorithms,
			DisallowedIssuers:    own,
			Compiler:             compiler,
		}
		if issuer.Issuer.CertificateAuthority != "" {
			o.CAContentProvider = authority(issuer.Issuer.CertificateAuthority)
		}
		accepts, err := oidc.New(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("accept tokens of %s: %w", issuer.Issuer.URL, err)
		}
		out = append(out, strangers{accepts})
	}
	return out, nil
}

// strangers refuses tokens that name a user or group of the cluster's own: without a prefix an
// issuer could make somebody a node, a control loop or an administrator.
type strangers struct{ authenticator.Token }

// AuthenticateToken implements authenticator.Token.
func (s strangers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	response, ok, err := s.Token.AuthenticateToken(ctx, token)
	if !ok || err != nil {
		return response, ok, err
	}
	for _, name := range append([]string{response.User.GetName()}, response.User.GetGroups()...) {
		if strings.HasPrefix(name, "system:") {
			return nil, false, fmt.Errorf("the token of another issuer names %q, which is the cluster's own", name)
		}
	}
	return response, true, nil
}

// authority is a certificate authority that does not change.
type authority string

// CurrentCABundleContent implements oidc.CAContentProvider.
func (a authority) CurrentCABundleContent() []byte { return []byte(a) }
