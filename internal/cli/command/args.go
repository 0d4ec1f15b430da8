// Package command is what the commands of the command line share: how many arguments they take, where a cluster lives,
// and how they end.
package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Group makes a command that only holds others: alone it shows its help.
func Group(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q of %q; %s", args[0], cmd.CommandPath(), SeeHelp(cmd))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// NoArgs refuses arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q takes no argument, but got %q; %s", cmd.CommandPath(), strings.Join(args, " "),
			SeeHelp(cmd))
	}
	return nil
}

// OneArg wants one argument, and says what for.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%q takes one argument, %s, but got %d; %s", cmd.CommandPath(), what, len(args),
				SeeHelp(cmd))
		}
		return nil
	}
}

func SeeHelp(cmd *cobra.Command) string { return fmt.Sprintf("see \"%s --help\"", cmd.CommandPath()) }
