package admin

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/pki"
)

func NewToken() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Tokens with which machines join"}
	command.Group(cmd)
	cmd.AddCommand(newTokenCreateCommand())
	return cmd
}

func newTokenCreateCommand() *cobra.Command {
	var (
		dataDir, description string
		ttl                  time.Duration
		forServer            bool
	)
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a join token and print it",
		Long: `Make a join token and print it. Run this where the control plane runs: the token
also carries the fingerprint of the cluster's certificate authority, so that a
machine that joins knows whom it talks to.

With --server the token is for one machine that becomes one more server. Whoever has
it can get the cluster's keys: let it be good for a short time only. It is stored as a
hash, and removed when the server has joined.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := adminClient(dataDir)
			if err != nil {
				return err
			}
			hash, err := pki.ReadCAHash(filepath.Join(dataDir, "pki"))
			if err != nil {
				return err
			}
			if forServer && !cmd.Flags().Changed("ttl") {
				ttl = time.Hour
			}
			newToken := authn.NewBootstrapToken
			if forServer {
				newToken = authn.NewServerToken
			}
			secret, token, err := newToken(time.Now(), ttl, description)
			if err != nil {
				return err
			}
			if _, err := client.CoreV1().Secrets(secret.Namespace).Create(cmd.Context(), secret,
				metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("store the join token: %w; does the control plane of %s run?", err, dataDir)
			}
			token.CAHash = hash
			fmt.Fprintln(cmd.OutOrStdout(), token.Text())
			return nil
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	cmd.Flags().DurationVar(&ttl, "ttl", 24*time.Hour,
		"how long the token is good for; 0 means forever; an hour by default with --server")
	cmd.Flags().BoolVar(&forServer, "server", false, "make a token with which a machine joins as one more server")
	cmd.Flags().StringVar(&description, "description", "", "what the token is for")
	return cmd
}
