package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// newKey makes the key of one run.
func newKey() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // It does not fail; the program would end.
	return base64.RawURLEncoding.EncodeToString(raw)
}

// policy lets the page load what this server has, talk to it, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard answers only what comes from the page of this run.
type guard struct {
	key string
	// port is the one that is listened on.
	port string
	next http.Handler
	// within is how long a body may take, refused how long that of a request which is refused.
	within, refused time.Duration
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
	why, code := g.refuses(r)
	if r.ContentLength != 0 {
		// Who sends a body byte by byte, or none of it, holds no connection for long.
		within := g.within
		if why != "" {
			within = g.refused
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // A recorder of tests has none.
	}
	if why != "" {
		h.Set("Connection", "close")
		http.Error(w, why, code)
		return
	}
	g.next.ServeHTTP(w, r)
}

// refuses says why a request is not answered; "" if it is.
func (g *guard) refuses(r *http.Request) (why string, code int) {
	if !g.ownHost(r.Host) {
		// A name of somebody else's may lead here (DNS rebinding).
		return "this page answers at 127.0.0.1 and localhost only", http.StatusMisdirectedRequest
	}
	if origin := r.Header.Get("Origin"); origin != "" &&
		(!strings.HasPrefix(origin, "http://") || !g.ownHost(strings.TrimPrefix(origin, "http://"))) {
		return "another page asks", http.StatusForbidden
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && !slices.Contains([]string{"same-origin", "none"}, site) &&
		!opens(r) {
		return "another page asks", http.StatusForbidden
	}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(given), []byte(g.key)) != 1 {
			return "the key of this run is missing; open the address that everynode dashboard printed", http.StatusUnauthorized
		}
	}
	return "", 0
}

// opens reports whether a browser opens the page itself in a tab, wherever the link to it stands: in the file that
// the browser is started with, or in a chat. Who made the link sees nothing of it.
func opens(r *http.Request) bool {
	return r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/") &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// ownHost reports whether a host and port are this server's own.
func (g *guard) ownHost(host string) bool {
	name, port, err := net.SplitHostPort(host)
	return err == nil && port == g.port && slices.Contains([]string{"127.0.0.1", "localhost", "::1"}, name)
}
