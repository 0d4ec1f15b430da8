package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAPI(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "asked for %s", r.URL.Path)
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "https://")
	dir := t.TempDir()
	for name, content := range map[string]string{
		"token": "secret", "namespace": "team",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := askAPI(t.Context(), "/api/v1/namespaces/{namespace}/pods", dir, address, &out); err != nil || out.String() != "asked for /api/v1/namespaces/team/pods" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := askAPI(t.Context(), "/api", dir, address, &out); err == nil || !strings.Contains(err.Error(), "401 Unauthorized: who are you?") {
		t.Errorf("with a wrong token: %v", err)
	}
}
