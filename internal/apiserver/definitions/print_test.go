package definitions

import (
	"bytes"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// TestPrint reads back what is printed: nothing unknown, nothing of a status, and the
// same rules.
func TestPrint(t *testing.T) {
	var out bytes.Buffer
	if err := Print(&out); err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(out.String(), "---\n")[1:]
	if len(documents) != 4 {
		t.Fatalf("%d definitions are printed, want 4", len(documents))
	}
	if strings.Contains(out.String(), "creationTimestamp: null") || strings.Contains(out.String(), "\nstatus:") {
		t.Errorf("what only the API server says is printed:\n%s", out.String())
	}
	bad := map[string]any{
		"apiVersion": "everynode.io/v1alpha1", "kind": "RolloutPolicy", "metadata": map[string]any{"name": "x", "namespace": "y"},
		"spec": map[string]any{"waves": []any{map[string]any{"name": "a", "count": int64(1), "percent": int64(1)}}},
	}
	for i, text := range documents {
		var read apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict([]byte(text), &read); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		const want = "must have exactly one of nodes, count, percent and each"
		if err := newElsewhere(t, &read).take(bad); err == nil || !strings.Contains(err.Error(), field.NewPath("spec", "waves").Index(0).String()) || !strings.Contains(err.Error(), want) {
			t.Errorf("by what is printed the answer is %v, want %s", err, want)
		}
	}
}
