package inprocess

import (
	"net/http"
	"strings"
	"sync"

	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Accounts are who the parts of this process are towards the API. Each has a
// token that is made at the start and known in the process only.
type Accounts struct {
	mu      sync.RWMutex // guards byToken
	byToken map[string]user.Info
}

var _ authenticator.Request = (*Accounts)(nil)

// TokenFor returns a new token of an account.
func (a *Accounts) TokenFor(account user.Info) string {
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
func (a *Accounts) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
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
