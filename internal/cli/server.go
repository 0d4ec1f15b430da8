package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/cli/admin"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/footprint"
	"github.com/everynode/everynode/internal/local"
	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/backups/schedule"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/membership"
)

// Certificates of nodes are good for at least shortestSigning and at most longestSigning.
const (
	shortestSigning = 10 * time.Minute
	longestSigning  = 365 * 24 * time.Hour
)

func newServerCommand() *cobra.Command {
	var join, token string
	o, daemonSets, withNode := config.Defaults(), true, true
	var faults *string
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a control plane",
		Long: `Run a control plane: the API, the controllers and the scheduler, in the foreground.

The administrator's kubeconfig is written to the data directory. Machines join
with "everynode agent" and a token from "everynode token create".

More servers join with --join and a token from "everynode token create --server".
Three can lose one, five can lose two, and go on.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSigning(o.SigningDuration); err != nil {
				return err
			}
			if *faults != "" && o.SimulatedNodes == 0 {
				return errors.New("--faults is about simulated nodes, and there are none; give --simulated-nodes as well")
			}
			var err error
			o.Faults, err = readFaults(*faults)
			if err != nil {
				return err
			}
			o.NoDaemonSetController, o.BindDaemonsLater = !daemonSets, !withNode
			// The API server shows this registry at /metrics.
			o.Metrics = legacyregistry.Registerer()
			if join != "" {
				if token == "" {
					token = os.Getenv(local.TokenVariable)
				}
				if err := membership.Join(cmd.Context(), o, join, token); err != nil {
					return err
				}
			}
			s, err := server.New(o)
			if err != nil {
				return err
			}
			go footprint.Keep(cmd.Context(), footprint.Server, clock.RealClock{})
			return endOr(cmd.Context(), s.Run(cmd.Context()), beginAnew)
		},
	}
	cmd.AddCommand(admin.NewServerLeave())
	command.AddDataDirFlag(cmd, &o.DataDir)
	f := cmd.Flags()
	f.StringSliceVar(&o.Listen, "listen", o.Listen, "address of the API as host:port; may be given more than once")
	f.StringVar(&o.AdvertiseAddress, "advertise-address", "", "IP address at which nodes and pods reach the API "+
		"(default: the first --listen address that is not loopback)")
	f.StringVar(&join, "join", "", "URL of a server, such as https://10.0.0.1:6443, whose cluster this one joins; not "+
		"used once it has joined")
	f.StringVar(&token, "token", "",
		"token for servers, with which it joins; the environment variable "+local.TokenVariable+
			" keeps it out of the process list")
	f.StringVar(&o.Name, "server-name", "", "name of this server among others (default: the host name)")
	f.StringVar(&o.PeerAddress, "peer-address", "",
		"host:port at which other servers reach this one's database; opened once there are others (default: port 2380 of "+
			"the address at which nodes reach the API)")
	f.StringSliceVar(&o.Balancers, "balancer", nil,
		"host:port at which something passes connections on to the servers, so that the certificate is for it, too; may be "+
			"given more than once. The first one is written to the kubeconfig")
	addEtcdFlags(cmd, o.API)
	addAPIFlags(cmd, o.API)
	f.StringVar(&o.ServiceCIDR, "service-cidr", o.ServiceCIDR, "network from which Services get their addresses")
	f.StringVar(&o.ClusterCIDR, "cluster-cidr", "",
		"network from which nodes get their pod addresses (default 10.244.0.0/16, or 10.128.0.0/9 with simulated nodes)")
	f.IntVar(&o.NodeMaskSize, "node-cidr-mask-size", 0,
		"length of the prefix of one node's part of that network (default 24, or 25 with more simulated nodes than that "+
			"has room for)")
	f.IntVar(&o.SimulatedNodes, "simulated-nodes", 0, "number of simulated nodes to run in this process")
	faults = addFaultsFlag(f)
	f.DurationVar(&o.SigningDuration, "cluster-signing-duration", longestSigning,
		"how long certificates of nodes are good for at most; nodes renew theirs by themselves")
	addDaemonSetFlags(f, &daemonSets, &withNode, &o.RecordDecisions)
	addBackupFlags(cmd, &o.Backups)
	return cmd
}

// checkSigning returns an error for a time that certificates of nodes cannot be good for.
func checkSigning(d time.Duration) error {
	switch {
	case d < shortestSigning:
		return fmt.Errorf("--cluster-signing-duration %s: nodes need time to renew their certificates, so %s is the least",
			d, shortestSigning)
	case d > longestSigning:
		return fmt.Errorf("--cluster-signing-duration %s: a stolen certificate should not be good forever, so %s, a year, "+
			"is the most", d, longestSigning)
	}
	return nil
}

// addDaemonSetFlags binds who runs DaemonSets, and how.
func addDaemonSetFlags(f *pflag.FlagSet, run, withNode *bool, record *string) {
	f.BoolVar(
		run, "daemonset-controller", true,
		"run the DaemonSet controller; false leaves DaemonSets to \"everynode controller\"",
	)
	f.BoolVar(
		withNode, "daemon-pods-with-node", true,
		"create the pods of daemons with their node, in one write, where the scheduler agrees; false has it bind each of "+
			"them afterwards",
	)
	f.StringVar(
		record, "record-decisions", "",
		"file that gets a script of what the DaemonSet controller decides and from what; it grows with every event",
	)
}

// addBackupFlags binds when backups are made without anybody asking.
func addBackupFlags(cmd *cobra.Command, o *schedule.Options) {
	f := cmd.Flags()
	f.DurationVar(
		&o.Every, "backup-schedule", 0,
		"time between two scheduled backups, such as 6h; 0 makes none",
	)
	f.StringVar(
		&o.To, "backup-dir", "",
		"where scheduled backups go: a folder, best on another machine's disk, or "+
			"s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION, whose keys are taken from AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY or ~/.aws/credentials",
	)
	f.IntVar(&o.Keep, "backup-keep", 7, "how many scheduled backups are kept")
	f.StringVar(
		&o.KeyFile, "backup-key-file", "",
		"file with the keys of age with which they are encrypted; the public half of one that \"everynode backup key\" "+
			"makes is enough",
	)
}

// endOr begins again when that is why the server has ended. One that was told to stop
// meanwhile ends: the program that followed would not know of that.
func endOr(ctx context.Context, err error, beginAnew func() error) error {
	switch {
	case !errors.Is(err, membership.ErrBeginAnew):
		return err
	case ctx.Err() != nil:
		return nil
	}
	return beginAnew()
}

// beginAnew has this process be the same program again, with the same arguments.
func beginAnew() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to restart: %w; start it again", err)
	}
	if err := syscall.Exec(program, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("restart: %w; start the server yourself", err)
	}
	return nil
}
