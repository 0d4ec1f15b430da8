package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/client"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/local"
)

func newImageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Put container images on nodes",
	}
	command.Group(cmd)
	cmd.AddCommand(newImageImportCommand(), client.NewImagePull(), client.NewImagePins(), client.NewImageUnpin())
	return cmd
}

func newImageImportCommand() *cobra.Command {
	var dataDir string
	var nodes []string
	cmd := &cobra.Command{
		Use:   "import FILE.tar",
		Short: "Give the nodes of a local cluster an archive made by docker save, or an OCI image layout",
		Args:  command.OneArg("the archive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(dataDir)
			if err != nil {
				return fmt.Errorf("find the data dir: %w", err)
			}
			return local.ImportImages(cmd.Context(), dir, args[0], nodes, func(node string, images []string) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", node, strings.Join(images, ", "))
			})
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	cmd.Flags().StringSliceVar(&nodes, "node", nil, "node to import into; may be given more than once (default: all)")
	return cmd
}
