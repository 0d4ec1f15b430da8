package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The longest names that the API allows fit into the name of a folder.
func TestLogFolder(t *testing.T) {
	const uid = "07fefad5-64d8-4787-8861-06e17941d8e4"
	if got := logFolder("default", "a", uid); got != "default_a_"+uid {
		t.Errorf("the folder is %s", got)
	}
	namespace, name := strings.Repeat("n", 63), strings.Repeat("p", 253)
	got := logFolder(namespace, name, uid)
	if len(got) > 255 || !strings.HasPrefix(got, namespace+"_ppp") || !strings.HasSuffix(got, "_"+uid) {
		t.Errorf("the folder is %s, %d bytes", got, len(got))
	}
	if err := os.Mkdir(filepath.Join(t.TempDir(), got), 0o700); err != nil {
		t.Error(err)
	}
}
