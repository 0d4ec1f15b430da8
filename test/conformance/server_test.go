// Package conformance tests what clients rely on, against a whole server: over
// HTTPS, with the bytes that a client sends and gets. docs/contract.md says which
// behaviour each test is for.
package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

// server is a running server without nodes, and a client that hides nothing.
type server struct {
	*testenv.Env
	http *http.Client
}

func start(t *testing.T) *server {
	t.Helper()
	return startWith(t)
}

func startWith(t *testing.T, change ...func(*config.Options)) *server {
	t.Helper()
	env := testenv.Start(t, change...)
	client, err := restclient.HTTPClientFor(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{Env: env, http: client}
}

// reply is what came back.
type reply struct {
	code     int
	body     map[string]any
	raw      []byte
	warnings []string
}

// The media types of bodies.
const (
	asJSON      = "application/json"
	mergePatch  = "application/merge-patch+json"
	strategic   = "application/strategic-merge-patch+json"
	serverApply = "application/apply-patch+yaml"
)

// send sends a request with a JSON body, if there is one.
func (s *server) send(t *testing.T, method, path, mediaType, body string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.Config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", mediaType)
	res, err := s.http.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := reply{code: res.StatusCode, raw: bytes.TrimSpace(raw)}
	for _, w := range res.Header.Values("Warning") {
		text := strings.TrimSuffix(strings.TrimPrefix(w, `299 - "`), `"`)
		out.warnings = append(out.warnings, strings.ReplaceAll(text, `\"`, `"`))
	}
	if err := json.Unmarshal(raw, &out.body); err != nil {
		t.Fatalf("%s %s answers %d, and no JSON: %s", method, path, res.StatusCode, raw)
	}
	return out
}

// accepting gets a path in a form that the client names.
func (s *server) accepting(t *testing.T, path, form string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", form)
	res, err := s.http.Do(req)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s answers %d: %s, %v", path, res.StatusCode, raw, err)
	}
	return raw
}

// want fails unless the reply has the code.
func (r reply) want(t *testing.T, code int) reply {
	t.Helper()
	if r.code != code {
		t.Fatalf("got %d, want %d: %s", r.code, code, r.raw)
	}
	return r
}

// says fails unless the reply is an error of that code and text.
func (r reply) says(t *testing.T, code int, reason, message string) {
	t.Helper()
	if r.code != code || r.body["reason"] != reason || r.body["message"] != message {
		t.Errorf("got %d %v: %v\nwant %d %s: %s", r.code, r.body["reason"], r.body["message"], code, reason, message)
	}
}

// at returns a part of the body by its path, such as "metadata.generation"; a
// slash takes the place of the dots when a name has dots itself. It is nil when
// there is none.
func (r reply) at(path string) any {
	separator := "."
	if strings.Contains(path, "/") {
		separator = "/"
	}
	var part any = r.body
	for _, key := range strings.Split(path, separator) {
		m, ok := part.(map[string]any)
		if !ok {
			return nil
		}
		part = m[key]
	}
	return part
}

// expect compares parts of the body with their expected JSON.
func (r reply) expect(t *testing.T, want map[string]string) {
	t.Helper()
	for path, value := range want {
		got, err := json.Marshal(r.at(path))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != value {
			t.Errorf("%s is %s, want %s", path, got, value)
		}
	}
}

const daemonSets = "/apis/apps/v1/namespaces/default/daemonsets"

// daemonSet is a valid manifest; fields are put into its spec, metadata into its
// metadata, both as JSON members that begin with a comma.
func daemonSet(name, metadata, fields string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":%q%s},"spec":{"selector":{"matchLabels":{"app":%q}},`+
		`"template":{"metadata":{"labels":{"app":%q}},"spec":{"containers":[{"name":"main","image":"everynode.io/demo:v1"}]}}%s}}`,
		name, metadata, name, name, fields)
}
