package admin

import (
	"bytes"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/encryption/plan"
)

func TestSecretsStatus(t *testing.T) {
	var out bytes.Buffer
	status := encryption.Status{File: "/d/encryption.yaml", Hash: "x", Problem: "it is broken",
		Resources: []encryption.Resource{
			{Name: "secrets", Writes: "secretbox:key-2",
				Stored: map[string]int{"secretbox:key-1": 3, "secretbox:key-2": 4, "": 1}},
		}}
	if err := writeSecretsStatus(&out, status, []plan.Server{{Name: "a", Follows: true}, {Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	want := `RESOURCE   KEY     OBJECTS   STATE
secrets    -       1         to be rewritten
secrets    key-1   3         to be rewritten
secrets    key-2   4         in use

The keys are in /d/encryption.yaml.
The server does not use it as it is now: it is broken
Server b uses other keys: copy that file there.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	out.Reset()
	if err := writeSecretsStatus(&out, encryption.Status{File: "/d/encryption.yaml",
		Resources: []encryption.Resource{{Name: "secrets", Stored: map[string]int{"": 2}}}}, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "2         not encrypted") ||
		!strings.Contains(out.String(), "everynode secrets encrypt") {
		t.Errorf("of data that is plain it says\n%s", &out)
	}
}
