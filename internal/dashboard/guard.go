package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strings"
)

// newKey makes the key of one run.
func newKey() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // It does not fail; the program would end.
	return base64.RawURLEncoding.EncodeToString(raw)
}

// policy lets the page load what this server has, talk to it, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard answers only what comes from the page of this run.
type guard struct {
	key string
	// port is the one that is listened on.
	port string
	next http.Handler
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !g.ownHost(r.Host) {
		// A name of somebody else's may lead here (DNS rebinding).
		http.Error(w, "this page answers at 127.0.0.1 and localhost only", http.StatusMisdirectedRequest)
		return
	}
	if origin := r.Header.Get("Origin"); origin != "" && (!strings.HasPrefix(origin, "http://") || !g.ownHost(strings.TrimPrefix(origin, "http://"))) {
		http.Error(w, "another page asks", http.StatusForbidden)
		return
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && !slices.Contains([]string{"same-origin", "none"}, site) && !opens(r) {
		http.Error(w, "another page asks", http.StatusForbidden)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(given), []byte(g.key)) != 1 {
			http.Error(w, "the key of this run is missing; open the address that everynode dashboard printed", http.StatusUnauthorized)
			return
		}
	}
	g.next.ServeHTTP(w, r)
}

// opens tells whether a browser opens the page itself in a tab, wherever the link to it stands: in the file that
// the browser is started with, or in a chat. Who made the link sees nothing of it.
func opens(r *http.Request) bool {
	return r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/") &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// ownHost tells whether a host and port are this server's own.
func (g *guard) ownHost(host string) bool {
	name, port, err := net.SplitHostPort(host)
	return err == nil && port == g.port && slices.Contains([]string{"127.0.0.1", "localhost", "::1"}, name)
}
