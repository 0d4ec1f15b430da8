package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/everynode/everynode/internal/apiserver/options"
)

// addEtcdFlags binds where the API server keeps its objects, under kube-apiserver's names.
func addEtcdFlags(cmd *cobra.Command, o *options.Options) {
	f, etcd := cmd.Flags(), &o.Etcd.StorageConfig.Transport
	f.StringSliceVar(&etcd.ServerList, "etcd-servers", nil, "URLs of an etcd cluster to use instead of the embedded one")
	f.StringSliceVar(&etcd.ServerList, "etcd-endpoints", nil, "the old name of --etcd-servers")
	_ = f.MarkDeprecated("etcd-endpoints", "use --etcd-servers") // It fails for flags that do not exist only.
	f.StringVar(&etcd.TrustedCAFile, "etcd-cafile", "", "file with the certificate authority of the etcd servers")
	f.StringVar(&etcd.CertFile, "etcd-certfile", "", "file with the certificate that is shown to the etcd servers")
	f.StringVar(&etcd.KeyFile, "etcd-keyfile", "", "file with that certificate's key")
	f.StringVar(
		&o.Etcd.StorageConfig.Prefix, "etcd-prefix", o.Etcd.StorageConfig.Prefix, "what all keys in etcd begin with",
	)
}

// addAPIFlags binds what else may be set about the API server, under kube-apiserver's
// names, and returns these.
func addAPIFlags(cmd *cobra.Command, o *options.Options) (names []string) {
	before := map[string]bool{}
	each := cmd.Flags().VisitAll
	each(func(f *pflag.Flag) { before[f.Name] = true })
	f, run := cmd.Flags(), o.Run
	f.IntVar(
		&run.MaxRequestsInFlight, "max-requests-inflight", run.MaxRequestsInFlight,
		"how many reading requests are served at a time; with priority and fairness, its sum with the next is shared out. "+
			"The default is 20 for each core, up to 400",
	)
	f.IntVar(
		&run.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", run.MaxMutatingRequestsInFlight,
		"how many writing requests are served at a time. The default is 10 for each core, up to 200",
	)
	f.BoolVar(
		&o.Features.EnablePriorityAndFairness, "enable-priority-and-fairness", o.Features.EnablePriorityAndFairness,
		"queue requests by priority and flow, so that a greedy client slows down nobody else; false only limits how many "+
			"are served",
	)
	f.IntVar(
		&o.Serving.HTTP2MaxStreamsPerConnection, "http2-max-streams-per-connection", o.Serving.HTTP2MaxStreamsPerConnection,
		"how many requests a client may have open on one connection",
	)
	f.DurationVar(
		&run.RequestTimeout, "request-timeout", run.RequestTimeout,
		"how long a request may take, unless it is a watch or a stream",
	)
	f.IntVar(
		&run.MinRequestTimeout, "min-request-timeout", run.MinRequestTimeout,
		"seconds that a watch is held open at least; each gets a random time from this to twice as much",
	)
	f.Float64Var(
		&run.GoawayChance, "goaway-chance", run.GoawayChance,
		"the chance, up to 0.02, that a request makes its client connect again, so that clients spread over several servers",
	)
	f.DurationVar(
		&run.ShutdownDelayDuration, "shutdown-delay-duration", run.ShutdownDelayDuration,
		"how long a server that stops goes on serving, while /readyz fails already; for load balancers",
	)
	f.BoolVar(
		&o.Features.EnableProfiling, "profiling", o.Features.EnableProfiling,
		"serve profiles of this process at /debug/pprof/, to administrators",
	)
	f.StringVar(
		&o.Serving.MinTLSVersion, "tls-min-version", "",
		"the oldest version of TLS that is spoken: VersionTLS12, which is the default, or VersionTLS13",
	)
	f.StringSliceVar(
		&o.Serving.CipherSuites, "tls-cipher-suites", nil,
		"names of the cipher suites for TLS 1.2, as Go has them (default: Go's own choice)",
	)
	f.StringSliceVar(
		&o.EnablePlugins, "enable-admission-plugins", nil, "admission plugins that are on; all are, unless disabled",
	)
	f.StringSliceVar(&o.DisablePlugins, "disable-admission-plugins", nil, "admission plugins that are off")
	f.Var(
		cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates",
		"features of the API server's library to switch, as NAME=true or NAME=false",
	)
	f.BoolVar(&o.NodesReadAllNodes, "nodes-read-all-nodes", false, "let nodes read all Nodes in full, as agents need "+
		"that were built before there was the group network.everynode.io; only while such agents are updated")
	f.StringSliceVar(&o.NodeNetworks, "node-cidr", nil,
		"networks that the addresses of nodes are of; with none, a node may report private addresses and the one that it "+
			"speaks from")
	o.Audit.AddFlags(f)
	addEncryptionFlags(f, o)
	addRequestFlags(f, o)
	addAuthenticationFlags(cmd, o.Authentication)
	addObjectFlags(f, o)
	addForeignFlags(f)
	each(func(f *pflag.Flag) {
		if !before[f.Name] {
			names = append(names, f.Name)
		}
	})
	return names
}

// addEncryptionFlags binds how objects are encrypted before they are stored.
func addEncryptionFlags(f *pflag.FlagSet, o *options.Options) {
	f.StringVar(
		&o.Etcd.EncryptionProviderConfigFilepath, "encryption-provider-config", "",
		"file that says how Secrets and other objects are encrypted before they are stored, as Kubernetes' "+
			"EncryptionConfiguration; nobody else may read it",
	)
	f.BoolVar(&o.Etcd.EncryptionProviderConfigAutomaticReload, "encryption-provider-config-automatic-reload", false,
		"follow changes of that file without a restart")
}

// addRequestFlags binds what web browsers and those who start and stop servers ask for.
func addRequestFlags(f *pflag.FlagSet, o *options.Options) {
	run := o.Run
	f.StringSliceVar(
		&run.CorsAllowedOriginList, "cors-allowed-origins", nil,
		"regular expressions of origins from which web pages may use the API; each begins with ^ or // and ends with $ or "+
			"a port",
	)
	f.StringSliceVar(
		&run.HSTSDirectives, "strict-transport-security-directives", nil,
		"directives of HSTS for web browsers, such as max-age=31536000",
	)
	f.DurationVar(
		&run.LivezGracePeriod, "livez-grace-period", run.LivezGracePeriod,
		"how long a server that starts counts as alive, whatever does not work yet",
	)
	f.BoolVar(
		&run.ShutdownSendRetryAfter, "shutdown-send-retry-after", run.ShutdownSendRetryAfter,
		"a server that stops answers new requests with 429 until those under way are done",
	)
	f.DurationVar(
		&run.ShutdownWatchTerminationGracePeriod, "shutdown-watch-termination-grace-period",
		run.ShutdownWatchTerminationGracePeriod, "how long a server that stops waits for its watches to end",
	)
	f.IntVar(
		&o.Etcd.DeleteCollectionWorkers, "delete-collection-workers", o.Etcd.DeleteCollectionWorkers,
		"how many objects of a collection are deleted at a time",
	)
	f.Var(
		(*cliflag.ConfigurationMap)(&o.RuntimeConfig), "runtime-config",
		"versions of the API that must be served, as GROUP/VERSION=true; all that there are, and none can be switched off",
	)
}

// addAuthenticationFlags binds who is let in.
func addAuthenticationFlags(cmd *cobra.Command, a *options.Authentication) {
	f, o := cmd.Flags(), &a.OIDC
	f.Var(
		&told{&a.Anonymous, &a.AnonymousGiven}, "anonymous-auth",
		"let in requests without credentials, as system:anonymous, who may read the version and the server's health",
	)
	f.Lookup("anonymous-auth").NoOptDefVal = "true"
	f.StringVar(
		&a.ConfigFile, "authentication-config", "",
		"file that says whose tokens are accepted, and on which paths none are needed, as Kubernetes' "+
			"AuthenticationConfiguration; read at the start",
	)
	f.StringVar(&o.IssuerURL, "oidc-issuer-url", "", "https:// URL of an OpenID Connect issuer whose tokens are accepted")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "audience that the issuer's tokens must be for")
	f.StringVar(
		&o.CAFile, "oidc-ca-file", "", "file with the certificate authority of the issuer (default: those of this machine)",
	)
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "claim that is the user's name")
	f.StringVar(
		&o.UsernamePrefix, "oidc-username-prefix", "",
		"what is put before the user's name; - for nothing (default: the issuer's URL and #, unless the claim is email)",
	)
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim that lists the user's groups")
	f.StringVar(
		&o.GroupsPrefix, "oidc-groups-prefix", "",
		"what is put before each group; without it an issuer may name any group, system:masters too",
	)
	f.StringSliceVar(
		&o.SigningAlgorithms, "oidc-signing-algs", o.SigningAlgorithms, "algorithms that tokens may be signed with",
	)
	f.Var(
		cliflag.NewMapStringString(&o.RequiredClaims), "oidc-required-claim",
		"CLAIM=VALUE that a token must have; may be given more than once",
	)
}

// addObjectFlags binds how tokens of accounts are made, and defaults of objects.
func addObjectFlags(f *pflag.FlagSet, o *options.Options) {
	a := o.ServiceAccounts
	f.StringArrayVar(
		&a.Issuers, "service-account-issuer", a.Issuers,
		"issuer of service accounts' tokens; may be given more than once, then the first one issues and all are accepted",
	)
	f.StringSliceVar(
		&a.Audiences, "api-audiences", nil, "audiences of which tokens for this API have one (default: the issuers)",
	)
	f.DurationVar(
		&a.MaxExpiration, "service-account-max-token-expiration", 0,
		"how long a service account's token is good for at most, an hour or more; one that asks for more gets this "+
			"(default: as long as it asks for)",
	)
	f.StringVar(
		&a.KeysURI, "service-account-jwks-uri", "",
		"https:// URL that others are told to find the keys of these tokens at (default: this server's)",
	)
	f.Int64Var(
		&o.Objects.NotReadySeconds, "default-not-ready-toleration-seconds", o.Objects.NotReadySeconds,
		"how long a pod stays on a node that is not ready, unless the pod says it",
	)
	f.Int64Var(
		&o.Objects.UnreachableSeconds, "default-unreachable-toleration-seconds", o.Objects.UnreachableSeconds,
		"how long a pod stays on a node that cannot be reached, unless the pod says it",
	)
	f.DurationVar(&o.Objects.EventLifetime, "event-ttl", o.Objects.EventLifetime, "how long events are kept")
}
