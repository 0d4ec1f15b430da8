package cli

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestFetchProgramWritesAProgramThatEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "end")
	var out, errOut bytes.Buffer
	code := Execute(t.Context(), []string{"fetch-program", file}, &out, &errOut)
	if code != 0 || out.Len()+errOut.Len() > 0 {
		t.Fatalf("it ends with %d: %s%s", code, &out, &errOut)
	}
	said, err := exec.Command(file).CombinedOutput()
	if err != nil || len(said) > 0 {
		t.Errorf("the program: %v: %s", err, said)
	}
	code = Execute(t.Context(), []string{"fetch-program", filepath.Join(file, "none")}, &out, &errOut)
	if code == 0 || !strings.Contains(errOut.String(), "write the program") {
		t.Errorf("it ends with %d: %s", code, &errOut)
	}
}
