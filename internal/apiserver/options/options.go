// Package options is what an operator may set about the API server: the structs
// of the API server's library with our defaults, checked as a whole before
// anything starts. Flags are bound to their fields by package cli.
package options

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
)

// storagePrefix is the root of all keys, the same as kube-apiserver's.
const storagePrefix = "/registry"

// watchGrace is how long a server that stops waits for its watches to end. Without
// it they are not even told, and a single `kubectl get -w` holds the server up.
const watchGrace = 2 * time.Second

// Options are what may be set about the API server. New gives those of a server
// that nobody has told anything.
type Options struct {
	// Run are limits and times of requests.
	Run *genericoptions.ServerRunOptions
	// Serving is how TLS is spoken; the listener and its certificate are added by
	// the server.
	Serving *genericoptions.SecureServingOptions
	// Features are profiling, and priority and fairness.
	Features *genericoptions.FeatureOptions
	// Etcd is where objects are kept, and how. Without servers it is the database
	// in this process.
	Etcd *genericoptions.EtcdOptions
	// EnablePlugins and DisablePlugins name plugins of admission. All are on unless
	// disabled.
	EnablePlugins, DisablePlugins []string
	// FeatureGates switch features of the library on and off, for the process.
	FeatureGates map[string]bool
	// Audit is what is recorded of who did what, and where. Nothing by default.
	Audit *genericoptions.AuditOptions
	// NodesReadAllNodes lets nodes list and watch all Nodes, as agents did that knew no
	// other way to learn of each other's networks.
	NodesReadAllNodes bool
	// NodeNetworks are those that the addresses of nodes are of, as CIDRs. With none, nodes
	// report private addresses and those that they speak from.
	NodeNetworks []string
	// Authentication is who else is let in than the cluster itself knows.
	Authentication *Authentication
	// ServiceAccounts is how their tokens are made.
	ServiceAccounts *ServiceAccounts
	// Objects are defaults of objects.
	Objects *Objects
	// RuntimeConfig says of versions of the API, by their names, whether they are served.
	RuntimeConfig map[string]string
}

// New returns the defaults.
func New() *Options {
	o := &Options{
		Run:      genericoptions.NewServerRunOptionsForComponent(basecompatibility.DefaultKubeComponent, globals()),
		Serving:  genericoptions.NewSecureServingOptions(),
		Features: genericoptions.NewFeatureOptions(),
		Etcd:     genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(storagePrefix, nil)),
		Audit:    genericoptions.NewAuditOptions(),

		Authentication: newAuthentication(), ServiceAccounts: &ServiceAccounts{Issuers: []string{DefaultIssuer}},
		Objects: newObjects(), RuntimeConfig: map[string]string{},
	}
	o.Run.MaxRequestsInFlight, o.Run.MaxMutatingRequestsInFlight = inFlight(runtime.GOMAXPROCS(0))
	o.Run.ShutdownWatchTerminationGracePeriod = watchGrace
	// Each stream may hold 256 KiB that nobody has read yet. A client that wants more
	// streams opens another connection.
	o.Serving.HTTP2MaxStreamsPerConnection = 100
	o.Etcd.DeleteCollectionWorkers = 16
	return o
}

// inFlight are how many reading and writing requests are served at a time: as many as
// kube-apiserver serves on a machine with fifty cores or more, and fewer on a smaller
// one. The control loops share the cores with the requests, and nothing in Go can put
// one before the other: each step of a loop waits for all requests that run, so that a
// crowd of them would be in the way of nodes and rollouts. One that waits in its queue
// is not.
func inFlight(cores int) (reading, writing int) {
	return min(400, 8*cores), min(200, 4*cores)
}

// globals is the library's registry of versions and feature gates. They belong to
// the process, however many servers it runs.
var globals = sync.OnceValue(func() basecompatibility.ComponentGlobalsRegistry {
	registry := basecompatibility.NewComponentGlobalsRegistry()
	err := registry.Register(
		basecompatibility.DefaultKubeComponent, compatibility.DefaultBuildEffectiveVersion(),
		utilfeature.DefaultMutableFeatureGate,
	)
	if err == nil {
		err = registry.Set()
	}
	if err != nil {
		panic(fmt.Sprintf("register the version of the API: %v", err)) // The library's own defaults do not fit each other.
	}
	return registry
})

// Completed are options that were checked. Only Complete makes them.
type Completed struct{ *completed }

type completed struct{ Options }

// Complete checks the options and fills in what follows from them. The error says
// in one line which values are good.
func (o *Options) Complete() (Completed, error) {
	if err := utilerrors.NewAggregate(o.validate()); err != nil {
		return Completed{}, err
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(o.FeatureGates); err != nil {
		return Completed{}, fmt.Errorf("--feature-gates: %w", err)
	}
	o.ServiceAccounts.complete()
	if err := o.Authentication.complete(o.ServiceAccounts.Issuers); err != nil {
		return Completed{}, err
	}
	return Completed{&completed{Options: *o}}, nil
}

func (o *Options) validate() (errs []error) {
	errs = append(errs, o.Run.Validate()...)
	errs = append(errs, o.Serving.Validate()...)
	errs = append(errs, o.validateTLS()...)
	errs = append(errs, o.Features.Validate()...)
	// The library knows no etcd without an address.
	etcd := *o.Etcd
	if o.Embedded() {
		etcd.StorageConfig.Transport.ServerList = []string{"embedded"}
	}
	errs = append(errs, etcd.Validate()...)
	errs = append(errs, o.validateKeys()...)
	errs = append(errs, o.validatePlugins()...)
	if _, err := o.NodePrefixes(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, o.validateGates()...)
	errs = append(errs, o.ServiceAccounts.validate()...)
	errs = append(errs, o.Objects.validate()...)
	return append(errs, o.validateAudit()...)
}

// NodePrefixes reads NodeNetworks.
func (o *Options) NodePrefixes() (out []netip.Prefix, err error) {
	for _, text := range o.NodeNetworks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--node-cidr %q: give a network such as 10.0.0.0/8: %w", text, err)
		}
		out = append(out, network.Masked())
	}
	return out, nil
}

// indispensable are the plugins without which somebody with few rights gives himself more, or a node reads what no
// pod on it names. What kube-apiserver has of them it decides elsewhere, where nobody can switch it off.
var indispensable = []string{"CertificateApproval", "LiveContent", "RBACEscalation", "ServerTokens"}

func (o *Options) validatePlugins() (errs []error) {
	for _, name := range indispensable {
		if slices.Contains(o.DisablePlugins, name) {
			errs = append(errs, fmt.Errorf(
				"--disable-admission-plugins: %s cannot be off: others would get rights that nobody gave them", name))
		}
	}
	return errs
}

// validateTLS refuses versions that are broken, which the library would still speak.
func (o *Options) validateTLS() (errs []error) {
	if v := o.Serving.MinTLSVersion; v != "" && v != "VersionTLS12" && v != "VersionTLS13" {
		errs = append(errs, fmt.Errorf("--tls-min-version %q: give VersionTLS12 or VersionTLS13", v))
	}
	if _, err := cliflag.TLSCipherSuites(o.Serving.CipherSuites); err != nil {
		errs = append(errs, fmt.Errorf(
			"--tls-cipher-suites: %w; the names are %s", err, strings.Join(cliflag.PreferredTLSCipherNames(), ", "),
		))
	}
	return errs
}

// validateKeys refuses keys that others on this machine can read, and files for etcd
// that do not go together.
func (o *Options) validateKeys() (errs []error) {
	etcd := o.Etcd.StorageConfig.Transport
	for _, f := range []struct{ flag, file string }{
		{"--encryption-provider-config", o.Etcd.EncryptionProviderConfigFilepath},
		{"--etcd-keyfile", etcd.KeyFile},
	} {
		if f.file == "" {
			continue
		}
		info, err := os.Stat(f.file)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", f.flag, err))
		case info.Mode().Perm()&0o077 != 0:
			errs = append(errs, fmt.Errorf(
				"%s: others may read or change %s, which holds keys (mode %04o); use \"chmod 600 %s\"",
				f.flag, f.file, info.Mode().Perm(), f.file,
			))
		}
	}
	switch {
	case (etcd.CertFile == "") != (etcd.KeyFile == ""):
		errs = append(errs, errors.New("--etcd-certfile and --etcd-keyfile belong together; give both or neither"))
	case etcd.CertFile+etcd.TrustedCAFile != "" && o.Embedded():
		errs = append(errs, errors.New("--etcd-cafile and --etcd-certfile are for an etcd that --etcd-servers names"))
	}
	return errs
}

// validateGates refuses gates that there are not, before any is set.
func (o *Options) validateGates() (errs []error) {
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	for name := range o.FeatureGates {
		if _, ok := known[featuregate.Feature(name)]; !ok {
			errs = append(errs, fmt.Errorf(
				"--feature-gates: there is no gate %q; the gates are %s", name, strings.Join(gates(known), ", "),
			))
		}
	}
	return errs
}

// gates are the names of those that can be set.
func gates(known map[featuregate.Feature]featuregate.FeatureSpec) (names []string) {
	for name, spec := range known {
		if !spec.LockToDefault {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names
}

// Embedded says whether objects are kept in the database of this process.
func (o *Options) Embedded() bool { return len(o.Etcd.StorageConfig.Transport.ServerList) == 0 }

// ApplyTo sets what needs nothing but the options. The listener and fairness need
// more, and are the server's to apply.
func (c Completed) ApplyTo(config *genericapiserver.Config) error {
	if err := c.Run.ApplyTo(config); err != nil {
		return fmt.Errorf("apply the options of requests: %w", err)
	}
	if err := c.Audit.ApplyTo(config); err != nil {
		return fmt.Errorf("set up the audit log: %w", err)
	}
	return nil
}
