package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// group makes a command that only holds others: alone it shows its help.
func group(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q of %q; %s", args[0], cmd.CommandPath(), seeHelp(cmd))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q takes no argument, but got %q; %s", cmd.CommandPath(), strings.Join(args, " "), seeHelp(cmd))
	}
	return nil
}

// oneArg wants one argument, and says what for.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%q takes one argument, %s, but got %d; %s", cmd.CommandPath(), what, len(args), seeHelp(cmd))
		}
		return nil
	}
}

func seeHelp(cmd *cobra.Command) string { return fmt.Sprintf("see \"%s --help\"", cmd.CommandPath()) }

// folder is a flag that names a folder. The empty text is refused: in a script
// it is a variable that nobody has set, and it would mean the current folder.
type folder string

func (f *folder) String() string { return string(*f) }
func (f *folder) Type() string   { return "string" }
func (f *folder) Set(text string) error {
	if text == "" {
		return errors.New("no folder is named")
	}
	*f = folder(text)
	return nil
}
