package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/everynode/everynode/internal/server"
)

// Certificates of nodes are good for at least shortestSigning and at most longestSigning.
const (
	shortestSigning = 10 * time.Minute
	longestSigning  = 365 * 24 * time.Hour
)

func newServerCommand() *cobra.Command {
	o, daemonSets := server.Defaults(), true
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a control plane",
		Long: `Run a control plane: the API, the controllers and the scheduler, in the foreground.

The administrator's kubeconfig is written to the data directory. Machines join
with "everynode agent" and a token from "everynode token create".`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.SigningDuration < shortestSigning {
				return fmt.Errorf("--cluster-signing-duration %s: nodes need time to renew their certificates, so %s is the least", o.SigningDuration, shortestSigning)
			}
			if o.SigningDuration > longestSigning {
				return fmt.Errorf("--cluster-signing-duration %s: a stolen certificate should not be good for ever, so %s, a year, is the most", o.SigningDuration, longestSigning)
			}
			o.NoDaemonSetController = !daemonSets
			// The API server shows this registry at /metrics.
			o.Metrics = legacyregistry.Registerer()
			s, err := server.New(o)
			if err != nil {
				return err
			}
			return s.Run(cmd.Context())
		},
	}
	addDataDirFlag(cmd, &o.DataDir)
	f := cmd.Flags()
	f.StringSliceVar(&o.Listen, "listen", o.Listen, "address of the API as host:port; may be given more than once")
	f.StringVar(&o.AdvertiseAddress, "advertise-address", "", "IP address at which nodes and pods reach the API (default: the first --listen address that is not loopback)")
	f.StringSliceVar(&o.EtcdEndpoints, "etcd-endpoints", nil, "URLs of an etcd cluster to use instead of the embedded one")
	f.StringVar(&o.ServiceCIDR, "service-cidr", o.ServiceCIDR, "network from which Services get their addresses")
	f.StringVar(&o.ClusterCIDR, "cluster-cidr", "", "network from which nodes get their pod addresses (default 10.244.0.0/16, or 10.128.0.0/9 with simulated nodes)")
	f.IntVar(&o.SimulatedNodes, "simulated-nodes", 0, "number of simulated nodes to run in this process")
	f.DurationVar(&o.SigningDuration, "cluster-signing-duration", longestSigning, "how long certificates of nodes are good for at most; nodes renew theirs by themselves")
	f.BoolVar(&daemonSets, "daemonset-controller", true, "run the DaemonSet controller; false leaves DaemonSets to \"everynode controller\"")
	f.StringVar(&o.RecordDecisions, "record-decisions", "", "file that gets a script of what the DaemonSet controller decides and from what; it grows with every event")
	return cmd
}
