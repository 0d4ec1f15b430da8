package cli

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
)

// newFetchProgramCommand is for the first container of pods that fetch images.
func newFetchProgramCommand() *cobra.Command {
	return &cobra.Command{
		Use:    fetchpod.Command + " FILE",
		Short:  "Write the program that images are run with which are only to be pulled: it ends at once",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := fetchpod.Build(runtime.GOARCH)
			if err != nil {
				return err
			}
			// Others than its owner run it too.
			err = os.WriteFile(args[0], program, 0o555) //nolint:gosec // it is for all to read
			if err != nil {
				return fmt.Errorf("write the program %s: %w", args[0], err)
			}
			return nil
		},
	}
}
