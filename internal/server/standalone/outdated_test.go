package standalone

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/beside"
)

// older is an API whose RolloutPolicies have no field but some; without any it has no kinds of ours.
func older(t *testing.T, fields ...string) *rest.Config {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path string, with any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(with); err != nil {
				t.Error(err)
			}
		})
	}
	answer("/version", map[string]string{"gitVersion": "v1.36.0"})
	if len(fields) > 0 {
		spec := map[string]any{}
		for _, f := range fields {
			spec[f] = map[string]any{"x-kubernetes-preserve-unknown-fields": true}
		}
		keeps := map[string]any{"x-kubernetes-preserve-unknown-fields": true}
		answer("/openapi/v3/apis/everynode.io/v1alpha1", map[string]any{"components": map[string]any{
			"schemas": map[string]any{"policy": map[string]any{
				"x-kubernetes-group-version-kind": []any{map[string]any{"kind": "RolloutPolicy"}},
				"properties": map[string]any{
					"apiVersion": keeps, "kind": keeps, "metadata": keeps, "status": keeps,
					"spec": map[string]any{"properties": spec},
				},
			}},
		}})
	}
	api := httptest.NewServer(mux)
	t.Cleanup(api.Close)
	return &rest.Config{Host: api.URL}
}

// A program that is newer than the API's definitions says which fields are missing, and does not begin beside another
// controller: the replicas of before go on.
func TestDefinitionsThatAreOlder(t *testing.T) {
	almost := []string{"selector", "waves", "domains", "failure", "nodeFaults", "pace", "windows", "content", "images"}
	for name, c := range map[string]struct {
		fields []string
		want   []string
	}{
		"no kinds":       {nil, nil},
		"one is missing": {almost[:8], []string{"lack RolloutPolicy spec.images:", "--print-crds"}},
		"many are":       {almost[:2], []string{"RolloutPolicy spec.content", "and 2 more"}},
		"none is":        {almost, nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := older(t, c.fields...)
			err := outdated(t.Context(), kubernetes.NewForConfigOrDie(config))
			if (err != nil) != (c.want != nil) {
				t.Fatalf("got %v", err)
			}
			for _, words := range c.want {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("got %v, want it to say %q", err, words)
				}
			}
			if c.want == nil {
				return
			}
			again := Run(t.Context(), Options{Config: config, Beside: &beside.Options{}})
			if again == nil || again.Error() != err.Error() {
				t.Errorf("it begins beside another controller: %v", again)
			}
		})
	}
}
