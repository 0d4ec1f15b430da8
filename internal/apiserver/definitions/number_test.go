package definitions

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

// known is the schema with the number v1alpha1.Schema, without its descriptions.
const known = "d06b2584709d"

// Who compares two programs, or two definitions, goes by their number: a schema that knows more has a greater one.
func TestASchemaThatKnowsMoreHasAGreaterNumber(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	var specs []any
	for _, d := range all {
		if got := d.Annotations[SchemaAnnotation]; got != strconv.Itoa(v1alpha1.Schema) {
			t.Errorf("%s says it has the schema %q", d.Name, got)
		}
		text, err := json.Marshal(d.Spec)
		if err != nil {
			t.Fatal(err)
		}
		var spec any
		if err := json.Unmarshal(text, &spec); err != nil {
			t.Fatal(err)
		}
		specs = append(specs, undescribed(spec))
	}
	text, err := json.Marshal(specs)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:6]); got != known {
		t.Errorf("the schema is another one: raise v1alpha1.Schema, unless that was done since the last release, "+
			"write the definitions into the chart again, and put %q here", got)
	}
}

// undescribed takes descriptions off, also such as are fields of that name: their types tell.
func undescribed(of any) any {
	switch of := of.(type) {
	case map[string]any:
		for name, value := range of {
			if _, text := value.(string); text && name == "description" {
				delete(of, name)
				continue
			}
			of[name] = undescribed(value)
		}
	case []any:
		for i := range of {
			of[i] = undescribed(of[i])
		}
	}
	return of
}
