package admin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/encryption/plan"
)

// changePatience is how long a change of keys waits for servers: writes that began
// before may be under way for a minute.
const changePatience = 3 * time.Minute

func NewSecrets() *cobra.Command {
	cmd := &cobra.Command{Use: "secrets", Short: "How Secrets are encrypted in the database"}
	command.Group(cmd)
	cmd.AddCommand(newSecretsStatusCommand(),
		newSecretsChangeCommand(
			"rotate-key", "Replace the key with which Secrets are encrypted", true,
			`Replace the key with which Secrets are encrypted in the database. The servers first
learn to read with the new key, then write with it; every Secret is written again, and
the old key is removed when nothing needs it any more. It takes about a minute, and
nothing is interrupted.`,
		),
		newSecretsChangeCommand(
			"encrypt", "Encrypt Secrets that were stored before encryption was turned on", false,
			`Encrypt the Secrets of a data folder that is from before Secrets were encrypted, or
finish a change of keys that was interrupted. New data folders do not need it.`,
		),
		newSecretsRewriteCommand())
	return cmd
}

const secretsWhere = `

Run this where the control plane runs, while it runs. It can be interrupted at any
moment, and continues when it is run again. Keep a copy of encryption.yaml
with each backup.`

func newSecretsStatusCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use: "status", Short: "Show what is encrypted in the database, and with which keys", Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := adminClient(dataDir)
			if err != nil {
				return err
			}
			servers := encryption.AskServers(client, time.Now)
			status, err := servers.Status(cmd.Context())
			if err != nil {
				return err
			}
			following, err := servers.Following(cmd.Context(), status.Hash)
			if err != nil {
				return err
			}
			return writeSecretsStatus(cmd.OutOrStdout(), status, following)
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	return cmd
}

// writeSecretsStatus shows one line for each key and resource.
func writeSecretsStatus(out io.Writer, status encryption.Status, servers []plan.Server) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "RESOURCE\tKEY\tOBJECTS\tSTATE")
	for _, r := range status.Resources {
		keys := slices.Collect(maps.Keys(r.Stored))
		if !slices.Contains(keys, r.Writes) {
			keys = append(keys, r.Writes)
		}
		slices.Sort(keys)
		for _, key := range keys {
			state := "to be rewritten"
			switch {
			case key == r.Writes && key == encryption.Plain:
				state = "not encrypted"
			case key == r.Writes:
				state = "in use"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", r.Name, orDash(strings.TrimPrefix(key, encryption.SecretBox)),
				r.Stored[key], state)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if status.Hash == "" && !status.Own {
		fmt.Fprintf(out, "\nThere is no %s. To encrypt Secrets: everynode secrets encrypt\n", status.File)
		return nil
	}
	fmt.Fprintf(out, "\nThe keys are in %s.\n", status.File)
	if status.Problem != "" {
		fmt.Fprintf(out, "The server does not use it as it is now: %s\n", status.Problem)
	}
	for _, s := range servers {
		if !s.Follows {
			fmt.Fprintf(out, "Server %s uses other keys: copy that file there.\n", s.Name)
		}
	}
	return nil
}

func newSecretsChangeCommand(use, short string, rotate bool, long string) *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long + secretsWhere, Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := adminClient(dataDir)
			if err != nil {
				return err
			}
			c := encryption.Change{DataDir: dataDir, Servers: encryption.AskServers(client, time.Now),
				Out: cmd.OutOrStdout(), Rotate: rotate, Patience: changePatience}
			return c.Run(cmd.Context())
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	return cmd
}

func newSecretsRewriteCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use: "rewrite", Short: "Rewrite all objects that are not encrypted with the current key",
		Long: `Rewrite all objects that are not encrypted as they would be if they were written now:
after a change of your own --encryption-provider-config. Changing the keys in that file
is up to you; docs/encryption.md says how.`, Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := adminClient(dataDir)
			if err != nil {
				return err
			}
			return encryption.RewriteAll(cmd.Context(), encryption.AskServers(client, time.Now), cmd.OutOrStdout(),
				changePatience)
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	return cmd
}
