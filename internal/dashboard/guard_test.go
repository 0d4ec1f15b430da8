package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	g := &guard{key: "secret", port: "8080", next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })}
	tab := map[string]string{"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	frame := map[string]string{"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
	for name, c := range map[string]struct {
		path, host, key, origin, site string
		want                          int
		more                          map[string]string
	}{
		"the page itself":            {"/", "127.0.0.1:8080", "", "", "none", 204, nil},
		"data with the key":          {"/api/stream", "127.0.0.1:8080", "secret", "", "same-origin", 204, nil},
		"by the other name":          {"/api/stream", "localhost:8080", "secret", "http://localhost:8080", "", 204, nil},
		"a program with the key":     {"/api/stream", "[::1]:8080", "secret", "", "", 204, nil},
		"data without a key":         {"/api/stream", "127.0.0.1:8080", "", "", "", 401, nil},
		"a wrong key":                {"/api/stream", "127.0.0.1:8080", "secre", "", "", 401, nil},
		"a longer key":               {"/api/stream", "127.0.0.1:8080", "secrets", "", "", 401, nil},
		"a name that leads here":     {"/", "evil.example:8080", "", "", "", 421, nil},
		"no port":                    {"/", "127.0.0.1", "", "", "", 421, nil},
		"another port":               {"/", "127.0.0.1:8081", "", "", "", 421, nil},
		"another page":               {"/api/rollout", "127.0.0.1:8080", "secret", "https://evil.example", "", 403, nil},
		"a page of another port":     {"/api/rollout", "127.0.0.1:8080", "secret", "http://127.0.0.1:9000", "", 403, nil},
		"a page over https":          {"/api/rollout", "127.0.0.1:8080", "secret", "https://127.0.0.1:8080", "", 403, nil},
		"a page without an origin":   {"/api/rollout", "127.0.0.1:8080", "secret", "null", "", 403, nil},
		"a frame of another page":    {"/", "127.0.0.1:8080", "", "", "cross-site", 403, nil},
		"a page of the same machine": {"/", "127.0.0.1:8080", "", "", "same-site", 403, nil},
		"a tab that a file opens":    {"/", "127.0.0.1:8080", "", "", "cross-site", 204, tab},
		"a frame in another page":    {"/", "127.0.0.1:8080", "", "", "cross-site", 403, frame},
		"data in a tab":              {"/api/node", "127.0.0.1:8080", "secret", "", "cross-site", 403, tab},
		"a form of another page":     {"/", "127.0.0.1:8080", "", "https://evil.example", "cross-site", 403, tab},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "http://x"+c.path, nil)
			r.Host = c.host
			for header, value := range map[string]string{"Authorization": "Bearer " + c.key, "Origin": c.origin, "Sec-Fetch-Site": c.site} {
				if value != "" && value != "Bearer " {
					r.Header.Set(header, value)
				}
			}
			for header, value := range c.more {
				r.Header.Set(header, value)
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("it is answered with %d (%s), want %d", w.Code, strings.TrimSpace(w.Body.String()), c.want)
			}
			for _, header := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Cross-Origin-Resource-Policy"} {
				if w.Header().Get(header) == "" {
					t.Errorf("the answer has no %s", header)
				}
			}
		})
	}
	if strings.Contains(policy, "unsafe") {
		t.Error("the page may carry out what stands in it")
	}
	if a, b := newKey(), newKey(); a == b || len(a) < 40 {
		t.Errorf("keys are %q and %q", a, b)
	}
}
