package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/apiserver/definitions"
	"github.com/everynode/everynode/internal/server"
)

func newControllerCommand() *cobra.Command {
	o := server.ControllerOptions{LeaderElection: true, LeaseNamespace: "kube-system", LeaseName: "everynode-daemonset-controller"}
	var (
		kubeconfig string
		qps        float32
		burst      int
		printCRDs  bool
	)
	cmd := &cobra.Command{
		Use:   "controller [--kubeconfig FILE]",
		Short: "Run the DaemonSet controller alone, against any Kubernetes API",
		Long: `Run Everynode's DaemonSet controller, and nothing else, against any Kubernetes API.

The API's own DaemonSet controller must be switched off first, because two would
undo each other's work. docs/controller.md says how, and which permissions are
needed. Several instances may run; one of them works at a time.

Where the API has the kinds RolloutPolicy and DaemonSetRollout, changes travel by
them:

    everynode controller --print-crds | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printCRDs {
				return definitions.Print(cmd.OutOrStdout())
			}
			config, err := controlled(kubeconfig)
			if err != nil {
				return err
			}
			config.QPS, config.Burst, config.UserAgent = qps, burst, "everynode-daemonset-controller"
			o.Config = config
			return server.RunDaemonSetController(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; in a pod, the cluster that it is in without it")
	f.BoolVar(&o.LeaderElection, "leader-elect", o.LeaderElection, "stand by for, or be stood by, other instances")
	f.StringVar(&o.LeaseNamespace, "leader-elect-namespace", o.LeaseNamespace, "namespace of the lease of the leader")
	f.StringVar(&o.LeaseName, "leader-elect-name", o.LeaseName, "name of the lease of the leader")
	f.Float32Var(&qps, "kube-api-qps", 100, "requests a second to the API on average; -1 for no limit")
	f.IntVar(&burst, "kube-api-burst", 200, "requests to the API at once")
	f.IntVar(&o.Workers, "workers", 0, "pods created or deleted at a time (default 32)")
	f.StringVar(&o.RecordDecisions, "record-decisions", "", "file that gets a script of what the DaemonSet controller decides and from what; it grows with every event")
	f.StringVar(&o.Listen, "listen", "", "host:port where metrics and health are served, without TLS: /metrics, /healthz, /readyz; nowhere without it")
	f.BoolVar(&printCRDs, "print-crds", false, "print the definitions of RolloutPolicy and DaemonSetRollout, for an API that does not have them, and do nothing else")
	return cmd
}

// controlled says how the controller reaches its cluster: by the kubeconfig, or as the
// pod's account.
func controlled(kubeconfig string) (*restclient.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read the kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	config, err := restclient.InClusterConfig()
	switch {
	case errors.Is(err, restclient.ErrNotInCluster):
		return nil, errors.New("no cluster is given; name its --kubeconfig")
	case err != nil:
		return nil, fmt.Errorf("use the account of this pod: %w", err)
	}
	return config, nil
}
