package helm

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhooks are what the pods of a chart would serve.
type webhooks struct {
	// url and ca, the latter in base64, are how the API reaches them.
	url, ca string
}

// serveWebhooks serves /check, which refuses DaemonSets of nobody, and /complete, which
// adds an annotation, until the test ends.
func serveWebhooks(t *testing.T) webhooks {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path string, decide func(o *metav1.PartialObjectMetadata, to *admissionv1.AdmissionResponse)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) {
			var review admissionv1.AdmissionReview
			var o metav1.PartialObjectMetadata
			if err := json.NewDecoder(req.Body).Decode(&review); err != nil || review.Request == nil {
				http.Error(w, "no review", http.StatusBadRequest)
				return
			}
			if err := json.Unmarshal(review.Request.Object.Raw, &o); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
			decide(&o, review.Response)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(review) // A client that is gone needs no answer.
		})
	}
	answer("/check", func(o *metav1.PartialObjectMetadata, to *admissionv1.AdmissionResponse) {
		if o.Labels["owner"] == "nobody" {
			to.Allowed, to.Result = false, &metav1.Status{Message: "whose is it?"}
		}
	})
	answer("/complete", func(o *metav1.PartialObjectMetadata, to *admissionv1.AdmissionResponse) {
		patch := `[{"op":"add","path":"/metadata/annotations","value":{"gate.example.com/seen":"yes"}}]`
		if o.Annotations != nil {
			patch = `[{"op":"add","path":"/metadata/annotations/gate.example.com~1seen","value":"yes"}]`
		}
		kind := admissionv1.PatchTypeJSONPatch
		to.Patch, to.PatchType = []byte(patch), &kind
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return webhooks{url: server.URL, ca: base64.StdEncoding.EncodeToString(authority)}
}
