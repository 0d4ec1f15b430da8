package authn

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Paths at which others find out how to verify service account tokens.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/openid/v1/jwks"
)

// Discovery gives the handlers of DiscoveryPath and KeysPath; keysURI is where
// others find the keys.
func (t *Tokens) Discovery(keysURI string) (map[string]http.Handler, error) {
	configuration, err := json.Marshal(map[string]any{
		"issuer":                                t.issuers[0],
		"jwks_uri":                              keysURI,
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{string(jose.ES256)},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the issuer's configuration: %w", err)
	}
	return map[string]http.Handler{
		DiscoveryPath: document("application/json", func() ([]byte, error) { return configuration, nil }),
		KeysPath:      document("application/jwk-set+json", t.publicKeys),
	}, nil
}

// publicKeys are those that tokens can be verified with now.
func (t *Tokens) publicKeys() ([]byte, error) {
	var set jose.JSONWebKeySet
	for _, key := range t.keys.ServiceAccountKeys() {
		keyID, err := keyIDOf(key)
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: keyID, Algorithm: string(jose.ES256), Use: "sig"})
	}
	return json.Marshal(set)
}

func document(contentType string, read func() ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
			return
		}
		if !accepts(r.Header.Get("Accept"), contentType) {
			http.Error(w, "406: Not Acceptable\n\nAvailable representations: "+contentType, http.StatusNotAcceptable)
			return
		}
		body, err := read()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write(body) // the client has gone if this fails
	})
}

// accepts reports whether a client that accepts that takes a content type. One that says nothing takes anything.
func accepts(header, contentType string) bool {
	if strings.TrimSpace(header) == "" {
		return true
	}
	kind, _, _ := strings.Cut(contentType, "/")
	for _, part := range strings.Split(header, ",") {
		media, _, err := mime.ParseMediaType(part)
		if err == nil && (media == contentType || media == kind+"/*" || media == "*/*") {
			return true
		}
	}
	return false
}
