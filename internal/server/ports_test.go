package server_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// listening are the addresses at which a process takes connections or datagrams, as
// the kernel writes them.
func listening(t *testing.T, pid int) (out []string) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, fd := range fds {
		if link, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil {
			own[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
		}
	}
	// The state of who listens; UDP sockets without another end are in state 07.
	for file, state := range map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"} {
		text, err := os.ReadFile(filepath.Join(proc, "net", file))
		if err != nil {
			continue // no such family
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == state && own[f[9]] {
				out = append(out, file+" "+f[1])
			}
		}
	}
	slices.Sort(out)
	return out
}

// The control plane listens at one port, that of the API: not for its database, not for
// metrics. Who comes without a credential learns the version and the health there, and
// nothing else.
func TestOnePortIsOpenAndTellsNobodyAnything(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	_, process := serveProcess(t, dir)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(config.Host[strings.LastIndex(config.Host, ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"tcp 0100007F:" + strings.ToUpper(strconv.FormatInt(int64(port)+0x10000, 16)[1:])}
	if open := listening(t, process.Pid); !slices.Equal(open, want) {
		t.Errorf("the server listens at %q, want %q", open, want)
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // A stranger knows no CA.
	open := map[string]bool{"/livez": true, "/readyz": true, "/healthz": true, "/version": true, "/version/": true}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/version", "/version/", "/", "/api", "/apis", "/api/v1", "/api/v1/namespaces", "/api/v1/secrets", "/apis/apps/v1/daemonsets",
		"/metrics", "/metrics/slis", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/debug/api_priority_and_fairness/dump_queues", "/logs", "/configz", "/flagz", "/statusz",
		"/openapi/v2", "/openapi/v3", "/swagger.json", "/ui", "/.well-known/openid-configuration", "/openid/v1/jwks", "/everynode/v1/trust", "/everynode/v1/encryption", "/everynode/v1/servers", "/everynode/v1/backup",
		"/livez/ping", "/readyz/etcd", "/healthz/poststarthook/everynode/keys", "/livez?verbose", "/api/../livez/../api", "//api", "/api/v1/nodes/x/proxy/", "/v3/kv/range", "/health"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodHead, http.MethodTrace} {
			r, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(r)
			if err != nil {
				t.Errorf("%s %s: %v", method, path, err)
				continue
			}
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			refused := answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized
			name, _, _ := strings.Cut(path, "?")
			// HEAD of what may be read needs the right to another verb.
			if want := !open[name] || method != http.MethodGet; refused != want {
				t.Errorf("%s %s: %d, refused %v, want %v: %.200s", method, path, answer.StatusCode, refused, want, body)
			}
		}
	}
	// Without TLS there is nothing.
	if answer, err := http.Get(strings.Replace(config.Host, "https", "http", 1) + "/livez"); err == nil { //nolint:noctx // It is a stranger's.
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %s", answer.Status)
		}
	}
}
