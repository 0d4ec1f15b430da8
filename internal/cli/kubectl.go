package cli

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	basecli "k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/everynode/everynode/internal/cli/command"
	_ "github.com/everynode/everynode/internal/cli/english" // has kubectl's packages load no texts that nobody reads
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
			all := args
			args, dataDir := takeDataDir(all)
			if dataDir == "" && len(all) > 0 && strings.HasPrefix(all[0], "--data-dir") {
				return fmt.Errorf("%s names no folder; %s", all[0], command.SeeHelp(cmd.Root()))
			}
			flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).
				WithDiscoveryQPS(50)
			if !mentions(args, "--kubeconfig") && (dataDir != "" || os.Getenv("KUBECONFIG") == "") {
				if dataDir == "" {
					dataDir = command.DefaultDataDir()
				}
				path := filepath.Join(dataDir, "kubeconfig")
				if err := command.CheckKubeconfig(path); err != nil {
					return err
				}
				// In the environment it holds for "config" and for plugins, too.
				if err := os.Setenv("KUBECONFIG", path); err != nil {
					return fmt.Errorf("point kubectl at the cluster: %w", err)
				}
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
			// From here on this process is kubectl, which leaves signals and errors to itself.
			signal.Reset(os.Interrupt, syscall.SIGTERM)
			cmdutil.CheckErr(basecli.RunNoErrOutput(k))
			return nil
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
