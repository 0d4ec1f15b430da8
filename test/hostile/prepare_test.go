package hostile

import (
	"context"
	"net/http"
	"testing"
)

// prepare makes what the objects of this package need: their namespace and its
// service account, which no control loop makes here.
func prepare(tb testing.TB, a *api) {
	tb.Helper()
	for path, body := range map[string]string{
		"/api/v1/namespaces": `{"metadata":{"name":"hostile"}}`,
	} {
		post(tb, a, path, body)
	}
	post(tb, a, "/api/v1/namespaces/hostile/serviceaccounts", `{"metadata":{"name":"default"}}`)
}

func post(tb testing.TB, a *api, path, body string) {
	tb.Helper()
	got := a.send(context.Background(), request{method: http.MethodPost, path: path, contentType: "application/json", body: []byte(body)})
	if got.code != http.StatusCreated && got.code != http.StatusConflict {
		tb.Fatalf("make %s: %d %s", path, got.code, got.body)
	}
}
