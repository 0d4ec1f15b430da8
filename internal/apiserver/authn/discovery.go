package authn

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-jose/go-jose/v4"
)

// Paths at which others find out how to verify service account tokens.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/openid/v1/jwks"
)

// Discovery gives the handlers of DiscoveryPath and KeysPath; serverURL is where
// clients reach this API server.
func (t *Tokens) Discovery(serverURL string) (map[string]http.Handler, error) {
	configuration, err := json.Marshal(map[string]any{
		"issuer":                                t.issuer,
		"jwks_uri":                              serverURL + KeysPath,
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{string(jose.ES256)},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the issuer's configuration: %w", err)
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{
		Key: &t.key.PublicKey, KeyID: t.keyID, Algorithm: string(jose.ES256), Use: "sig",
	}}})
	if err != nil {
		return nil, fmt.Errorf("encode the issuer's keys: %w", err)
	}
	return map[string]http.Handler{
		DiscoveryPath: document("application/json", configuration),
		KeysPath:      document("application/jwk-set+json", keys),
	}, nil
}

func document(contentType string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write(body) // the client has gone if this fails
	})
}
