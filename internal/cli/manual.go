package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/version"
)

// newManualCommand writes the manual pages, for packages.
func newManualCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "manual FOLDER",
		Short:  "Write manual pages into a folder",
		Hidden: true,
		Args:   command.OneArg("a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeManual(cmd.Root(), args[0])
		},
	}
}

// writeManual writes a page for each command that people see.
func writeManual(root *cobra.Command, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make the folder of manual pages: %w", err)
	}
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "Everynode " + version.Version, Manual: "Everynode"}
	if err := doc.GenManTree(root, header, folder); err != nil {
		return fmt.Errorf("write the manual pages into %s: %w", folder, err)
	}
	return nil
}
