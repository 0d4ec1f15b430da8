// Package client is the commands that are clients of a cluster, which may be another Kubernetes: what they show is read
// from its API. All but those of images are verbs of the plugin of kubectl too.
package client

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/cli/command"
)

// Commands are the verbs that are clients, and verbs of the plugin too.
func Commands(plugin bool) []*cobra.Command {
	return []*cobra.Command{newPlanCommand(plugin), newWhyCommand(plugin), newRolloutCommand(plugin),
		newDashboardCommand(plugin), newDoctorCommand(plugin)}
}

// cluster says which cluster a client is for, with kubectl's flags.
type cluster struct {
	flags   *genericclioptions.ConfigFlags
	dataDir string
	// plugin tells that kubectl's own rules hold; otherwise the cluster of the data
	// directory is the default, as for "everynode kubectl".
	plugin bool
}

// addClusterFlags binds the flags of a client.
func addClusterFlags(cmd *cobra.Command, plugin bool) *cluster {
	c := &cluster{plugin: plugin, flags: &genericclioptions.ConfigFlags{
		KubeConfig: ptr.To(""), Context: ptr.To(""), Namespace: ptr.To(""), Impersonate: ptr.To(""),
		ImpersonateGroup: &[]string{}, Timeout: ptr.To("0"),
	}}
	f := cmd.PersistentFlags()
	c.flags.AddFlags(f)
	if !plugin {
		f.Var((*command.Folder)(&c.dataDir), "data-dir",
			"folder of the cluster to use (default "+command.DefaultDataDir()+", unless KUBECONFIG or --kubeconfig names one)")
	}
	return c
}

// connect finds the cluster, and the namespace that is meant.
func (c *cluster) connect() (config *restclient.Config, namespace string, err error) {
	own := !c.plugin && *c.flags.KubeConfig == "" && (c.dataDir != "" || os.Getenv("KUBECONFIG") == "")
	if own {
		dir := c.dataDir
		if dir == "" {
			dir = command.DefaultDataDir()
		}
		path := filepath.Join(dir, "kubeconfig")
		if err := command.CheckKubeconfig(path); err != nil {
			return nil, "", err
		}
		c.flags.KubeConfig = &path
	}
	loader := c.flags.ToRawKubeConfigLoader()
	if namespace, _, err = loader.Namespace(); err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	if config, err = c.flags.ToRESTConfig(); err != nil {
		return nil, "", fmt.Errorf("find the cluster: %w", err)
	}
	return config, namespace, nil
}

// program is what people type before a client's verb.
func (c *cluster) program() string {
	if c.plugin {
		return "kubectl everynode"
	}
	return "everynode"
}
