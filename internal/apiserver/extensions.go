package apiserver

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/mux"
)

// customResourceDefinitions is where clients look whether a kind that they
// don't know is a custom one, before they say that there is no such kind.
const customResourceDefinitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// serveNoExtensions answers that there are no custom kinds. Discovery stays
// silent about it, because nobody can make any.
func serveNoExtensions(m *mux.PathRecorderMux) {
	m.UnlistedHandle(customResourceDefinitions, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "custom resources are not served", http.StatusMethodNotAllowed)
			return
		}
		responsewriters.WriteRawJSON(http.StatusOK, metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinitionList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items:    []metav1.PartialObjectMetadata{},
		}, w)
	}))
}
