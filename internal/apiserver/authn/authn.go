package authn

import (
	"crypto/x509"
	"errors"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/utils/clock"
)

// tokenCacheTime is how long an accepted token needs no second look. A token
// whose pod has gone is accepted that much longer.
const tokenCacheTime = 10 * time.Second

// Config says which proofs of identity are accepted.
type Config struct {
	// ClientCAs says which authorities issue client certificates, for each request again.
	ClientCAs x509request.VerifyOptionFunc
	// Refuse says why a client certificate in order is refused; nil refuses none.
	Refuse func(*x509.Certificate) error
	// Tokens are the service account tokens.
	Tokens *Tokens
	// BootstrapSecrets reads the Secrets of bootstrap tokens; nil accepts none.
	BootstrapSecrets *JoinTokens
	// ExtraTokens are further token authenticators, asked last.
	ExtraTokens []authenticator.Token
	// Anonymous says where those are let in who show nothing; nil for nowhere.
	Anonymous *apiserver.AnonymousAuthConfig
	// Clock is the real clock unless set.
	Clock clock.PassiveClock
}

// Authenticators are the ways to find out who somebody is.
type Authenticators struct {
	// Request looks at a whole request; who shows nothing is system:anonymous where that
	// is let in, who shows something wrong is refused.
	Request authenticator.Request
	// Token looks at a token alone, for TokenReviews.
	Token authenticator.Token
}

// New composes the authenticators.
func New(config Config) (Authenticators, error) {
	if config.ClientCAs == nil || config.Tokens == nil {
		return Authenticators{}, errors.New("authentication needs the client CAs and the service account tokens")
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	tokens := []authenticator.Token{config.Tokens}
	if config.BootstrapSecrets != nil {
		tokens = append(tokens, NewBootstrapTokens(config.BootstrapSecrets, config.Clock))
	}
	tokens = append(tokens, config.ExtraTokens...)
	token := cache.New(tokenunion.New(tokens...), false, tokenCacheTime, 0)

	request := group.NewAuthenticatedGroupAdder(union.New(
		x509request.NewDynamic(config.ClientCAs, userOfCertificate(config.Refuse)),
		bearertoken.New(token),
		websocket.NewProtocolAuthenticator(token),
	))
	if config.Anonymous != nil && config.Anonymous.Enabled {
		request = union.NewFailOnError(request, anonymous.NewAuthenticator(config.Anonymous.Conditions))
	}
	return Authenticators{Request: request, Token: token}, nil
}
