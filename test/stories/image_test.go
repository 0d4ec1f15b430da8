package stories

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/rogpeppe/go-internal/testscript"
)

// packimage FILE VERSION makes the image of a release of the program under test.
func packImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: packimage FILE VERSION")
	}
	root, err := filepath.Abs("../..")
	ts.Check(err)
	cmd := exec.Command("go", "run", "-trimpath", "./packaging/image", "-version", args[1], "-o", ts.MkAbs(args[0]), runtime.GOARCH+"="+ts.Getenv("EVERYNODE"))
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		ts.Fatalf("make the image: %v\n%s", err, out)
	}
}
