package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

// newKubectlCommand embeds kubectl, pointed at the cluster of the data
// directory. Everything after "kubectl" is kubectl's own.
func newKubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [--data-dir DIR] ...",
		Short: "kubectl, already pointed at the cluster",
		// kubectl reads its own flags; cobra would refuse those that it does not know.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, dataDir := takeDataDir(args)
			flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50)
			if !mentions(args, "--kubeconfig") && (dataDir != "" || os.Getenv("KUBECONFIG") == "") {
				if dataDir == "" {
					dataDir = defaultDataDir()
				}
				path := filepath.Join(dataDir, "kubeconfig")
				if _, err := os.Stat(path); err != nil {
					return fmt.Errorf("no cluster is found in %s: %w; start one with \"everynode up\", or name its --data-dir", dataDir, err)
				}
				flags.KubeConfig = &path
			}
			// kubectl looks for the command word in os.Args when it searches for plugins.
			os.Args = append([]string{"kubectl"}, args...)
			k := kubectl.NewDefaultKubectlCommandWithArgs(kubectl.KubectlOptions{
				PluginHandler: kubectl.NewDefaultPluginHandler([]string{"kubectl"}),
				Arguments:     os.Args,
				ConfigFlags:   flags,
				IOStreams:     genericiooptions.IOStreams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), ErrOut: cmd.ErrOrStderr()},
			})
			k.SetArgs(args)
			return k.ExecuteContext(cmd.Context())
		},
	}
}

// takeDataDir removes a leading --data-dir from kubectl's arguments.
func takeDataDir(args []string) (rest []string, dir string) {
	if len(args) >= 2 && args[0] == "--data-dir" {
		return args[2:], args[1]
	}
	if len(args) >= 1 && strings.HasPrefix(args[0], "--data-dir=") {
		return args[1:], strings.TrimPrefix(args[0], "--data-dir=")
	}
	return args, ""
}

func mentions(args []string, flag string) bool {
	for _, a := range args {
		if a == "--" {
			return false
		}
		if a == flag || strings.HasPrefix(a, flag+"=") {
			return true
		}
	}
	return false
}
