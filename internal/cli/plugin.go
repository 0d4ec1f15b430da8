package cli

import (
	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/client"
)

// pluginName is the name under which this program is a plugin of kubectl.
const pluginName = "kubectl-everynode"

// newPluginCommand is the command line of the plugin: what works as a client, on any
// Kubernetes.
func newPluginCommand() *cobra.Command {
	root := &cobra.Command{
		Use:         pluginName,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl everynode"},
		Short:       "Change daemons safely",
		Long: `Look at the changes of DaemonSets under a RolloutPolicy, and steer them. This is a
client: it works on any Kubernetes where Everynode's DaemonSet controller runs.`,
	}
	prepare(root)
	root.AddCommand(newVersionCommand())
	root.AddCommand(client.Commands(true)...)
	return root
}
