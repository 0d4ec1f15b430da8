package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

// DefaultDataDir is where a cluster lives when nobody says otherwise.
func DefaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/everynode"
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "everynode")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "everynode-data"
	}
	return filepath.Join(home, ".local", "share", "everynode")
}

// AddDataDirFlag binds --data-dir.
func AddDataDirFlag(cmd *cobra.Command, dir *string) {
	*dir = DefaultDataDir()
	cmd.Flags().Var((*Folder)(dir), "data-dir", "where the cluster keeps its data")
}

// Folder is a flag that names a folder. The empty text is refused: in a script
// it is a variable that nobody has set, and it would mean the current folder.
type Folder string

func (f *Folder) String() string { return string(*f) }

func (f *Folder) Type() string { return "string" }

func (f *Folder) Set(text string) error {
	if text == "" {
		return errors.New("no folder is named")
	}
	*f = Folder(text)
	return nil
}

// CheckKubeconfig sees whether the file that a control plane writes for the
// administrator is there and whole.
func CheckKubeconfig(path string) error {
	config, err := clientcmd.LoadFromFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf(
			"no cluster is found in %s: there is no kubeconfig; start one with \"everynode up\", or name its --data-dir",
			filepath.Dir(path),
		)
	case err == nil:
		err = clientcmd.ConfirmUsable(*config, "")
	}
	if err != nil {
		return fmt.Errorf("the kubeconfig %s cannot be used: %w; restart the control plane, which writes it again", path,
			err)
	}
	return nil
}
