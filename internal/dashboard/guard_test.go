package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	g := &guard{key: "secret", port: "8080", next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })}
	for name, c := range map[string]struct {
		path, host, key, origin, site string
		want                          int
	}{
		"the page itself":            {"/", "127.0.0.1:8080", "", "", "none", 204},
		"data with the key":          {"/api/stream", "127.0.0.1:8080", "secret", "", "same-origin", 204},
		"by the other name":          {"/api/stream", "localhost:8080", "secret", "http://localhost:8080", "", 204},
		"a program with the key":     {"/api/stream", "[::1]:8080", "secret", "", "", 204},
		"data without a key":         {"/api/stream", "127.0.0.1:8080", "", "", "", 401},
		"a wrong key":                {"/api/stream", "127.0.0.1:8080", "secre", "", "", 401},
		"a longer key":               {"/api/stream", "127.0.0.1:8080", "secrets", "", "", 401},
		"a name that leads here":     {"/", "evil.example:8080", "", "", "", 421},
		"no port":                    {"/", "127.0.0.1", "", "", "", 421},
		"another port":               {"/", "127.0.0.1:8081", "", "", "", 421},
		"another page":               {"/api/rollout", "127.0.0.1:8080", "secret", "https://evil.example", "", 403},
		"a page of another port":     {"/api/rollout", "127.0.0.1:8080", "secret", "http://127.0.0.1:9000", "", 403},
		"a page over https":          {"/api/rollout", "127.0.0.1:8080", "secret", "https://127.0.0.1:8080", "", 403},
		"a page without an origin":   {"/api/rollout", "127.0.0.1:8080", "secret", "null", "", 403},
		"a frame of another page":    {"/", "127.0.0.1:8080", "", "", "cross-site", 403},
		"a page of the same machine": {"/", "127.0.0.1:8080", "", "", "same-site", 403},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "http://x"+c.path, nil)
			r.Host = c.host
			for header, value := range map[string]string{"Authorization": "Bearer " + c.key, "Origin": c.origin, "Sec-Fetch-Site": c.site} {
				if value != "" && value != "Bearer " {
					r.Header.Set(header, value)
				}
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
