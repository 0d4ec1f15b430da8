package cli

import (
	"fmt"
	"strings"
	"testing"
)

// With more the libraries log what is sent and answered.
func TestMostVerboseLogHoldsNoBodies(t *testing.T) {
	t.Cleanup(func() { _ = setVerbosity("", 0) })
	for level, taken := range map[int]bool{-1: false, 0: true, mostVerbose: true, mostVerbose + 1: false, 10: false} {
		code, said := runCommand(t, "version", fmt.Sprintf("--verbosity=%d", level))
		if taken != (code == 0) || taken == strings.Contains(said, "must be 0 to 5") {
			t.Errorf("-v %d ends with %d: %q", level, code, said)
		}
	}
}
