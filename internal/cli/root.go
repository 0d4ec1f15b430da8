// Package cli is the command line: one file per verb. Flags are read here and
// nowhere else.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/cli/admin"
	"github.com/everynode/everynode/internal/cli/client"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// Execute runs the command line and returns the exit code.
func Execute(ctx context.Context, args []string, out, errOut io.Writer) int {
	return execute(ctx, newRootCommand(), args, out, errOut)
}

// ExecuteAs does the same for a program of that name, which may be the one under which
// it is a plugin of kubectl.
func ExecuteAs(ctx context.Context, name string, args []string, out, errOut io.Writer) int {
	if filepath.Base(name) == pluginName {
		return execute(ctx, newPluginCommand(), args, out, errOut)
	}
	return Execute(ctx, args, out, errOut)
}

func execute(ctx context.Context, root *cobra.Command, args []string, out, errOut io.Writer) int {
	// What it has to say about connections, their users say too.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	if err := root.ExecuteContext(ctx); err != nil {
		var code command.ExitCode
		if errors.As(err, &code) {
			return int(code)
		}
		// Some errors quote what others wrote.
		fmt.Fprintf(errOut, "everynode: %s\n", plaintext.Escape(err.Error()))
		return 1
	}
	return 0
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "everynode",
		Short: "One copy of a daemon on every machine you choose",
		Long: `Everynode keeps one copy of a daemon running on every machine you choose, as
machines join and leave, and changes it safely. It speaks the Kubernetes API for
this job, so existing manifests and kubectl work unchanged.

Start with "everynode up": a cluster of three nodes on this machine.`,
	}
	prepare(root)
	root.AddCommand(
		newUpCommand(), newDownCommand(), newImageCommand(), newServerCommand(), admin.NewMembers(), admin.NewBackup(),
		newAgentCommand(), admin.NewToken(), admin.NewNode(), admin.NewCertificates(), admin.NewSecrets(),
		newControllerCommand(),
		newKubectlCommand(), newVersionCommand(), newManualCommand(),
		newFetchProgramCommand(),
	)
	root.AddCommand(client.Commands(false)...)
	return root
}

// prepare sets up what every root command has.
func prepare(root *cobra.Command) {
	root.SilenceUsage, root.SilenceErrors = true, true
	command.Group(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if said := refusal(err); said != err { //nolint:errorlint // the very same one
			return said
		}
		return fmt.Errorf("%w; %s", err, command.SeeHelp(cmd))
	})
	logPlainly()
	verbosity := root.PersistentFlags().IntP("verbosity", "v", 0, "how much to log: 0 (little) to 5")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return setVerbosity("--verbosity", *verbosity) }
	root.CompletionOptions.HiddenDefaultCmd = true
}

// mostVerbose is the highest level of the log. From 8 on Kubernetes' clients log what they send and are sent.
const mostVerbose = 5

// setVerbosity says how much is logged, as a flag or a file has it.
func setVerbosity(from string, n int) error {
	if n < 0 || n > mostVerbose {
		return fmt.Errorf("%s is %d, must be 0 to %d: higher levels would log what Secrets hold", from, n, mostVerbose)
	}
	var level klog.Level
	return level.Set(strconv.Itoa(n))
}

// logPlainly has the log of the process keep its lines: what others wrote neither begins
// one nor does something in the terminal of who reads it.
func logPlainly() {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	for name, value := range map[string]string{"logtostderr": "false", "one_output": "true", "stderrthreshold": "FATAL"} {
		_ = flags.Set(name, value) // It fails for flags that do not exist only.
	}
	klog.SetOutput(plaintext.Entries(os.Stderr))
}
