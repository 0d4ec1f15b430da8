package loops

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/controller/daemonset"
)

func TestRecordingThatCannotBeMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "file")
	_, err := DaemonSets(daemonset.Config{}, path)
	if err == nil || !strings.Contains(err.Error(), "record the decisions about DaemonSets: open "+path) {
		t.Errorf("the error is %v", err)
	}
}
