package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/server/mux"
)

// TestNoCustomKinds is what kubectl asks before it says that there is no such kind.
func TestNoCustomKinds(t *testing.T) {
	m := mux.NewPathRecorderMux("test")
	serveNoExtensions(m)
	answer := httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, customResourceDefinitions, nil))
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(answer.Body.Bytes()); err != nil || answer.Code != http.StatusOK || len(list.Items) != 0 {
		t.Errorf("got status %d with %q (%v), want an empty list", answer.Code, answer.Body, err)
	}
	if paths := m.ListedPaths(); len(paths) != 0 {
		t.Errorf("%v is listed, and should be silent", paths)
	}
	answer = httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, customResourceDefinitions, nil))
	if answer.Code != http.StatusMethodNotAllowed {
		t.Errorf("making one: got status %d, want %d", answer.Code, http.StatusMethodNotAllowed)
	}
}
