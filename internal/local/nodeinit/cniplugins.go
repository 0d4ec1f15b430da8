package nodeinit

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/files/wholefile"
)

// CNIBin is where a node's containerd looks for CNI plugins, and where network daemons, as they are published, put
// theirs.
const CNIBin = "/opt/cni/bin"

// pluginLayers is where a node keeps what is in its nodeCNIBin and not in the machine's folder.
const pluginLayers = DataDir + "/cni-plugins"

// offerPlugins gives a node a nodeCNIBin of its own with the machine's plugins in it: what a network daemon writes
// there is the node's alone. They are stacked where folders can be, which costs no room, and copied elsewhere.
func offerPlugins(from, to, layers string) error {
	if stackPlugins(from, to, layers) == nil {
		return nil
	}
	return copyPlugins(from, to, layers)
}

// stackPlugins puts a folder of the node over that of the machine.
func stackPlugins(from, to, layers string) error {
	upper, work := filepath.Join(layers, "upper"), filepath.Join(layers, "work")
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a folder for CNI plugins: %w", err)
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", from, upper, work)
	if err := unix.Mount("overlay", to, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount the node's own %s: %w", to, err)
	}
	return nil
}

// copyPlugins copies what is in the machine's folder to one of the node.
func copyPlugins(from, to, layers string) error {
	upper := filepath.Join(layers, "upper")
	if err := os.MkdirAll(upper, 0o755); err != nil {
		return fmt.Errorf("make a folder for CNI plugins: %w", err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("list the CNI plugins: %w", err)
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(from, e.Name()))
		if err != nil {
			return fmt.Errorf("look at the CNI plugin %s: %w", e.Name(), err)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		if err := copyPlugin(filepath.Join(from, e.Name()), filepath.Join(upper, e.Name()), info.Mode().Perm()); err != nil {
			return fmt.Errorf("copy the CNI plugin %s: %w", e.Name(), err)
		}
	}
	if err := unix.Mount(upper, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the node's own %s: %w", to, err)
	}
	return nil
}

func copyPlugin(from, to string, mode fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return wholefile.Write(to, mode, func(w io.Writer) error {
		_, err := io.Copy(w, source)
		return err
	})
}
