package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/definitions"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/beside"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/footprint"
	"github.com/everynode/everynode/internal/server/standalone"
)

func newControllerCommand() *cobra.Command {
	o := standalone.Options{LeaderElection: true, LeaseNamespace: "kube-system",
		LeaseName: "everynode-daemonset-controller"}
	var (
		kubeconfig string
		qps        float32
		burst      int
		isBeside   bool
		guest      beside.Options
		isLeaving  bool
		keep, roll []string
		prints     printed
	)
	cmd := &cobra.Command{
		Use:   "controller [--kubeconfig FILE]",
		Short: "Run the DaemonSet controller alone, against any Kubernetes API",
		Long: `Run Everynode's DaemonSet controller, and nothing else, against any Kubernetes API.

The API's own DaemonSet controller must be switched off first, because two would
undo each other's work. docs/controller.md says how, and which permissions are
needed. Several instances may run; one of them works at a time.

Where the API has the kinds RolloutPolicy and DaemonSetRollout, changes follow
them:

    everynode controller --print-crds | kubectl apply -f -

With --beside the API's own DaemonSet controller stays on and makes the pods, and
this one leads changes: docs/another-kubernetes.md.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if prints != (printed{}) {
				return prints.to(cmd.OutOrStdout())
			}
			config, err := controlled(kubeconfig)
			if err != nil {
				return err
			}
			config.QPS, config.Burst, config.UserAgent = qps, burst, "everynode-daemonset-controller"
			config.ContentType, config.AcceptContentTypes = binaryForm, binaryForm+",application/json"
			o.Config, guest.Namespace = config, cmp.Or(guest.Namespace, o.LeaseNamespace)
			if isLeaving {
				l := beside.Leaver{Options: guest, API: config, Keep: keep, Roll: roll,
					Normalize: defaults.SetTemplate, Out: cmd.OutOrStdout()}
				return l.Leave(cmd.Context())
			}
			if isBeside {
				o.Beside = &guest
			}
			go footprint.Keep(cmd.Context(), footprint.Controller, clock.RealClock{})
			return standalone.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default in a pod: the cluster that it is in)")
	f.BoolVar(&o.LeaderElection, "leader-elect", o.LeaderElection, "elect a leader among the instances; others stand by")
	f.StringVar(&o.LeaseNamespace, "leader-elect-namespace", o.LeaseNamespace, "namespace of the lease of the leader")
	f.StringVar(&o.LeaseName, "leader-elect-name", o.LeaseName, "name of the lease of the leader")
	f.Float32Var(&qps, "kube-api-qps", 100, "requests a second to the API on average; -1 for no limit")
	f.IntVar(&burst, "kube-api-burst", 200, "requests to the API at once")
	f.IntVar(&o.Workers, "workers", 0, "pods created or deleted at a time (default 32)")
	f.StringVar(&o.RecordDecisions, "record-decisions", "",
		"file that gets a script of what the DaemonSet controller decides and from what; it grows with every event")
	f.StringVar(
		&o.Listen, "listen", "",
		"host:port where metrics and health are served, without TLS: /metrics, /healthz, /readyz; nowhere without it",
	)
	addFetchFlag(f, &o)
	addBesideFlags(f, &isBeside, &guest)
	f.BoolVar(&isLeaving, "leave", false, "give every DaemonSet back that --beside took over, as its author wrote it, "+
		"and restart no pod; refuse while one has pods of another revision")
	f.StringSliceVar(
		&keep, "keep-on-delete", nil,
		"with --leave: NAMESPACE/NAME of a DaemonSet that stays OnDelete with the pods that it has",
	)
	f.StringSliceVar(&roll, "let-it-roll", nil, "with --leave: NAMESPACE/NAME of a DaemonSet whose pods are all replaced "+
		"by its newest template, at once; needs the right to approve rollouts")
	prints.addFlags(f)
	return cmd
}

// binaryForm is how built-in kinds are written and read, which costs both sides less than JSON does.
const binaryForm = "application/vnd.kubernetes.protobuf"

// printed is what is to be printed for an API of others, in place of running.
type printed struct {
	definitions   bool
	startupPolicy string // the version of its group
}

func (p *printed) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&p.definitions, "print-crds", false,
		"print the definitions of Everynode's own kinds, for an API that does not have them, and do nothing else")
	f.StringVar(&p.startupPolicy, "print-startup-policy", "",
		"print a policy by which an API server of others closes nodes that NodeStartups choose itself, of this version of "+
			"admissionregistration.k8s.io, and do nothing else: v1 (Kubernetes 1.36 or newer), or v1beta1 where that and "+
			"MutatingAdmissionPolicy are switched on")
}

func (p *printed) to(out io.Writer) error {
	if p.definitions {
		return definitions.Print(out)
	}
	return registration.PrintStartupPolicy(out, p.startupPolicy)
}

func addFetchFlag(f *pflag.FlagSet, o *standalone.Options) {
	f.StringVar(&o.FetchImage, "fetch-image", "", "image of Everynode, of which pods are made that have nodes fetch "+
		"images before their turn, where a policy says fetch; without it nobody has them do that")
}

// addBesideFlags adds the flags of what runs beside another DaemonSet controller.
func addBesideFlags(f *pflag.FlagSet, is *bool, o *beside.Options) {
	f.BoolVar(is, "beside", false, "leave the API's own DaemonSet controller on, and lead changes beside it")
	f.StringVar(&o.Listen, "webhook-listen", ":9443",
		"with --beside: host:port where the API server's webhook is answered, with TLS")
	f.StringVar(&o.Service, "webhook-service", "everynode-webhook",
		"with --beside: name of the Service, on port 443, that leads there")
	f.StringVar(&o.URL, "webhook-url", "",
		"with --beside: URL by which the API server finds the webhook, where that is no Service")
	f.StringVar(&o.Namespace, "webhook-namespace", "",
		"with --beside: namespace of the Service and of the Secret (default that of the lease)")
	f.StringVar(&o.Secret, "webhook-secret", "everynode-webhook",
		"with --beside: name of the Secret that keeps the webhook's certificate")
	f.StringVar(&o.Maker, "daemonset-account", "system:serviceaccount:kube-system:daemon-set-controller",
		"with --beside: account by which the API's own DaemonSet controller makes pods")
	f.BoolVar(&o.Fail, "webhook-fail", false,
		"with --beside: refuse pods and DaemonSets while no webhook answers, in place of admitting them; those in their "+
			"node's network are admitted")
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
