package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/everynode/everynode/internal/version"
)

// newManualCommand writes the manual pages, for packages.
func newManualCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "manual FOLDER",
		Short:  "Write manual pages into a folder",
		Hidden: true,
		Args:   oneArg("a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeManual(cmd.Root(), args[0], time.Now())
		},
	}
}

// writeManual writes a page for each command that people see.
func writeManual(cmd *cobra.Command, folder string, now time.Time) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make the folder of manual pages: %w", err)
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(folder, name+".1"), []byte(manualPage(cmd, name, now)), 0o644); err != nil { //nolint:gosec // Everybody may read it.
		return fmt.Errorf("write the manual page of %s: %w", cmd.CommandPath(), err)
	}
	for _, sub := range cmd.Commands() {
		if !shown(sub) {
			continue
		}
		if err := writeManual(sub, folder, now); err != nil {
			return err
		}
	}
	return nil
}

// shown reports whether people see a command in the help.
func shown(cmd *cobra.Command) bool {
	return cmd.IsAvailableCommand() && !cmd.IsAdditionalHelpTopicCommand()
}

// manualPage is the page of one command, in the language of man.
func manualPage(cmd *cobra.Command, name string, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 %q \"Everynode %s\" \"Everynode\"\n", strings.ToUpper(name), now.UTC().Format(time.DateOnly), version.Version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", plain(name), plain(cmd.Short), plain(cmd.UseLine()))
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	b.WriteString(".SH DESCRIPTION\n")
	paragraphs(&b, text)
	flagList(&b, "OPTIONS", cmd.NonInheritedFlags())
	flagList(&b, "OPTIONS OF EVERY COMMAND", cmd.InheritedFlags())
	also := relatives(cmd)
	if len(also) > 0 {
		b.WriteString(".SH SEE ALSO\n" + strings.Join(also, ",\n") + "\n")
	}
	return b.String()
}

// relatives are the pages of the command above, and of those below.
func relatives(cmd *cobra.Command) (also []string) {
	page := func(c *cobra.Command) string {
		return fmt.Sprintf(".BR %s (1)", plain(strings.ReplaceAll(c.CommandPath(), " ", "-")))
	}
	if cmd.HasParent() {
		also = append(also, page(cmd.Parent()))
	}
	for _, sub := range cmd.Commands() {
		if shown(sub) {
			also = append(also, page(sub))
		}
	}
	return also
}

// flagList lists flags, but hidden ones.
func flagList(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH " + title + "\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, ".BR \\-%s \", \" \\-\\-%s", f.Shorthand, plain(f.Name))
		} else {
			fmt.Fprintf(b, ".BR \\-\\-%s", plain(f.Name))
		}
		if kind != "" {
			fmt.Fprintf(b, " \" %s\"", plain(kind))
		}
		b.WriteString("\n" + plain(usage))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
			b.WriteString(" (default " + plain(f.DefValue) + ")")
		}
		b.WriteString("\n")
	})
}

// paragraphs writes text with empty lines between paragraphs; indented lines are examples.
func paragraphs(b *strings.Builder, text string) {
	example := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch indented := strings.HasPrefix(line, "    "); {
		case line == "":
			b.WriteString(".PP\n")
			continue
		case indented && !example:
			b.WriteString(".nf\n")
			example = true
		case !indented && example:
			b.WriteString(".fi\n")
			example = false
		}
		b.WriteString(plain(line) + "\n")
	}
	if example {
		b.WriteString(".fi\n")
	}
}

// plain keeps man from taking text for its own words.
func plain(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
