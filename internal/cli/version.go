package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/version"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  command.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "everynode %s (Kubernetes API %s, %s, %s/%s)\n",
				version.Version, version.Kubernetes(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}
