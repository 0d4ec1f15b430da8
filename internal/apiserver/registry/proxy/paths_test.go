package proxy

import (
	"net/http"
	"strings"
	"testing"
)

// TestPathsOfAnAgent: what runs something in a container, or connects to a pod, needs the right to create, however its
// path is spelled. Only POST asks for that.
func TestPathsOfAnAgent(t *testing.T) {
	for _, path := range []string{"exec/ns/p/c", "/exec/ns/p/c", "//exec", "x/../exec/ns/p/c", "./attach/ns/p/c",
		"EXEC/ns/p/c", "run/ns/p/c",
		"portForward/ns/p", "tunnel", "cri/exec/token"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch,
			http.MethodDelete, http.MethodOptions, "CONNECT"} {
			err := checkAgentPath(method, path)
			if err == nil || !strings.Contains(err.Error(), "needs POST") {
				t.Errorf("%s %s: got %v", method, path, err)
			}
		}
		err := checkAgentPath(http.MethodPost, path)
		if err != nil {
			t.Errorf("POST %s: %v", path, err)
		}
	}
	for _, path := range []string{"", "/", "pods", "metrics", "containerLogs/ns/p/c", "healthz", "executions"} {
		err := checkAgentPath(http.MethodGet, path)
		if err != nil {
			t.Errorf("GET %s: %v", path, err)
		}
	}
}
