package apiserver

import (
	"net/http"
	"strings"
	"sync"

	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/apiserver/insidedoor"
)

// accounts are who the parts of this process are towards the API. Each has a
// token that is made at the start and known in the process only.
type accounts struct {
	mu      sync.RWMutex // guards byToken
	byToken map[string]user.Info
}

var _ authenticator.Request = (*accounts)(nil)

// tokenFor returns a new token of an account.
func (a *accounts) tokenFor(account user.Info) string {
	token := uuid.NewString()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byToken == nil {
		a.byToken = map[string]user.Info{}
	}
	a.byToken[token] = account
	return token
}

// AuthenticateRequest implements authenticator.Request. It has no opinion on
// tokens of others.
func (a *accounts) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, false, nil
	}
	a.mu.RLock()
	account, ok := a.byToken[token]
	a.mu.RUnlock()
	if !ok {
		return nil, false, nil
	}
	r.Header.Del("Authorization") // so that nobody hands it on
	return &authenticator.Response{User: account}, true, nil
}

// ConfigFor returns a client configuration that reaches the server in process
// under an account, with that account's rights. It works once Run has been called.
func (s *Server) ConfigFor(account user.Info) *restclient.Config {
	config := restclient.CopyConfig(s.loopback)
	config.BearerToken = s.accounts.tokenFor(account)
	return config
}

// InsideDoorFor returns the way for an account to write below HTTP. It works once
// Run has been called.
func (s *Server) InsideDoorFor(account user.Info) *insidedoor.Door { return s.inside.As(account) }
