package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/local"
	"github.com/everynode/everynode/internal/local/progress"
)

func newDownCommand() *cobra.Command {
	var dataDir string
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a cluster that was started with up",
		Long: `Stop a cluster that was started with up, and remove every process, namespace,
link, mount, packet filter table and cgroup that it made. Its data stays for the
next up, unless --purge is given. It also cleans up after a crash.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(dataDir)
			if err != nil {
				return fmt.Errorf("find the data dir: %w", err)
			}
			screen := progress.NewScreen(cmd.OutOrStdout(), command.IsTerminal(cmd.OutOrStdout()))
			defer screen.Close()
			return local.Down(cmd.Context(), dir, purge, screen.Report)
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	cmd.Flags().BoolVar(&purge, "purge", false, "also remove the cluster's data")
	return cmd
}
