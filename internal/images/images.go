// Package images holds the container images that a local cluster needs without
// a registry: the pause program and the demo daemon, both built from this
// repository and embedded in the binary. It makes image archives of them, byte
// for byte the same for the same binaries, and puts archives into a containerd.
package images

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// The names under which the images are known on every node.
const (
	// Pause runs first in every pod's sandbox and holds its namespaces.
	Pause = "everynode.io/pause:1"
	// DemoV1 is the daemon of the examples.
	DemoV1 = "everynode.io/demo:v1"
	// DemoV2 is the same program with another VERSION, to update to.
	DemoV2 = "everynode.io/demo:v2"
)

// ErrNotBuilt says that this binary carries no images, because it was not
// built by the Makefile, which builds the two programs first.
var ErrNotBuilt = errors.New("built without images; build with make build")

//go:embed all:embedded
var embedded embed.FS

// Built reports ErrNotBuilt if the binary carries no images.
func Built() error {
	for _, name := range []string{"pause", "demo"} {
		if _, err := program(embedded, name); err != nil {
			return err
		}
	}
	return nil
}

// PauseProgram is the static pause executable for this machine.
func PauseProgram() ([]byte, error) { return program(embedded, "pause") }

func program(files fs.FS, name string) ([]byte, error) {
	content, err := fs.ReadFile(files, "embedded/"+name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotBuilt
	case err != nil:
		return nil, fmt.Errorf("read embedded program %s: %w", name, err)
	}
	return content, nil
}
