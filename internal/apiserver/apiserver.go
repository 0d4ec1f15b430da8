// Package apiserver serves the Kubernetes API: k8s.io/apiserver's generic
// server with the kinds of package registry, the cluster's own certificates,
// RBAC, and the objects that a new cluster starts with.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	goruntime "runtime"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/apiserver/admission/onbindings"
	"github.com/everynode/everynode/internal/apiserver/atrest"
	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/apiserver/bootstrap/services"
	"github.com/everynode/everynode/internal/apiserver/clusterapi"
	"github.com/everynode/everynode/internal/apiserver/extensions"
	"github.com/everynode/everynode/internal/apiserver/fulllists"
	"github.com/everynode/everynode/internal/apiserver/inprocess"
	"github.com/everynode/everynode/internal/apiserver/insidedoor"
	"github.com/everynode/everynode/internal/apiserver/malformed"
	"github.com/everynode/everynode/internal/apiserver/metricsapi"
	"github.com/everynode/everynode/internal/apiserver/networkapi"
	"github.com/everynode/everynode/internal/apiserver/nodecall"
	"github.com/everynode/everynode/internal/apiserver/openapi"
	"github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/apiserver/podaccess"
	"github.com/everynode/everynode/internal/apiserver/quorum"
	"github.com/everynode/everynode/internal/apiserver/registry"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/scheme"
	"github.com/everynode/everynode/internal/apiserver/storages"
	"github.com/everynode/everynode/internal/node/trust"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/storage/backup"
)

// inProcessHost is the host of in-process requests; nothing resolves it.
const inProcessHost = "https://everynode.invalid"

// Config is what an API server needs from its surroundings.
type Config struct {
	// Options are what the operator has set; the zero value is the defaults.
	Options options.Completed
	// PKI holds the cluster's CA, the serving certificate and the keys.
	PKI *pki.Bundle
	// Listener takes the TLS connections of clients.
	Listener net.Listener
	// AdvertiseAddress is where pods and nodes reach the server.
	AdvertiseAddress net.IP
	AdvertisePort    int
	// OpenStorage opens the embedded database. When nil, the etcd servers of the
	// options are used.
	OpenStorage storages.Opener
	// OpenHot opens it for kinds that are kept in memory in our own way; nil for none.
	OpenHot storages.HotOpener
	// OpenReserving opens, in either, the storage of kinds that give out addresses.
	OpenReserving storages.ReservingOpener
	// Stored reads and writes what is stored, in either, as it is. KeyFile holds the
	// keys of stored Secrets. Without Stored nothing is encrypted that the options do
	// not name a configuration for.
	Stored  atrest.Database
	KeyFile string
	// Name is the server's among several; the same after each start.
	Name string
	// ServiceCIDR is where the addresses of Services come from.
	ServiceCIDR *net.IPNet
	// Members knows which servers belong to the cluster; nil where that is not ours to know.
	Members clusterapi.Members
	// Backups makes backups; nil where the database is not ours.
	Backups clusterapi.Backups
	// Presence, if it is set, keeps the endpoints of the API, among which are those of
	// other servers. Otherwise this server is the only one.
	Presence bool
	// Quorum returns a context that ends when this server is cut off from the majority of the servers, and another once
	// it is not any more; nil where that is not ours to know.
	Quorum func() context.Context
	// Servers are where the servers are that live, for agents to know.
	Servers func() []netip.AddrPort
	// Restored names the last restore of the database from a backup, for agents to know; empty
	// for none.
	Restored string
}

// Server is an API server that is ready to run.
type Server struct {
	// generic serves our own kinds, and front what comes before it.
	generic   *genericapiserver.GenericAPIServer
	front     *extensions.Aggregator
	loopback  *restclient.Config
	transport *inprocess.Transport
	informers informers.SharedInformerFactory
	kinds     []resource.Definition
	inside    *insidedoor.Door
	storages  *storages.Getter
	accounts  inprocess.Accounts
	// bindingsWatched says whether admission that somebody configured is about bindings.
	bindingsWatched func() bool
}

// New builds the server. Nothing listens or runs yet.
func New(cfg Config) (*Server, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	kinds := ownKinds(cfg.Options.Objects)
	types := scheme.New(kinds)
	s := &Server{kinds: kinds}
	s.transport = inprocess.NewTransport(s.ofOthers)
	generic, keeper, err := s.genericConfig(cfg, types, kinds)
	if err != nil {
		return nil, err
	}
	if err := s.secure(generic, cfg); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return nil, fmt.Errorf("make the in-process client: %w", err)
	}
	s.informers = informers.NewSharedInformerFactory(client, 0)
	if err := cfg.Options.Features.ApplyTo(generic, client, s.informers); err != nil {
		return nil, fmt.Errorf("apply the options of features: %w", err)
	}
	security, err := newSecurity(wait.ContextForChannel(generic.DrainedNotify()), cfg, client, s.informers)
	if err != nil {
		return nil, err
	}
	s.identify(generic, security)
	agents := callAgents(cfg, security)
	pods := podaccess.New(agents, security.getters.GetNode)
	if err := admit(cfg, generic, client, s.loopback, s.informers, security, pods); err != nil {
		return nil, err
	}
	s.bindingsWatched = onbindings.New(s.informers.Admissionregistration().V1())
	s.storages, err = storages.Open(storages.Config{
		Types: types, Tracker: generic.StorageObjectCountTracker, Etcd: cfg.Options.Etcd,
		Transformers: generic.ResourceTransformers,
		Open:         cfg.OpenStorage, OpenHot: cfg.OpenHot, OpenReserving: cfg.OpenReserving, Shared: cfg.Presence,
	}, kinds)
	if err != nil {
		return nil, err
	}
	generic.RESTOptionsGetter = s.storages

	chain := s.chain(generic, types, client, pods)
	custom, err := extensions.NewCustomResources(chain)
	if err != nil {
		return nil, err
	}
	s.generic, err = generic.Complete(s.informers).New("everynode", custom.Delegate())
	if err != nil {
		return nil, fmt.Errorf("build the API server: %w", err)
	}
	installation := registry.Dependencies{
		Scheme: types.Scheme, Codecs: types.Codecs, ParameterCodec: types.ParameterCodec, Storage: generic.RESTOptionsGetter,
		Agents: agents, Pods: pods, ServiceCIDR: cfg.ServiceCIDR,
		Tokens: security.Token, Audiences: security.audiences, Authorizer: generic.Authorization.Authorizer,
		Rules: security.rules, ServiceAccountTokens: authn.NewTokenREST(security.issuer),
		Client: client, Reservations: s.storages.ReservationsOf, Encoder: s.storages.Encoder,
	}
	served, err := registry.Install(s.generic, kinds, installation)
	if err != nil {
		return nil, err
	}
	if err := security.use(served); err != nil {
		return nil, err
	}
	s.inside = s.newInsideDoor(generic, types, served, security)
	networks, err := s.serveBesides(cfg, security, keeper, client, agents)
	if err != nil {
		return nil, err
	}
	if err := s.addHooks(cfg, client, security, networks); err != nil {
		return nil, err
	}
	s.front, err = extensions.NewAggregator(chain, front(cfg.PKI, pods), s.generic, custom)
	return s, err
}

// newInsideDoor makes the way below HTTP to the storages that are served.
func (s *Server) newInsideDoor(generic *genericapiserver.Config, types *scheme.Set, served registry.Served,
	security *security) *insidedoor.Door {
	return insidedoor.New(insidedoor.Config{
		Scheme: types.Scheme, Admission: generic.AdmissionControl, Equivalents: s.generic.EquivalentResourceRegistry,
		Storages:   served,
		Configured: configured(s.informers),
		Authorizer: security.authorizer, Audit: insidedoor.Audit{Policy: generic.AuditPolicyRuleEvaluator,
			Sink: generic.AuditBackend, Codecs: types.Codecs},
	})
}

// serveBesides serves what has no storage.
func (s *Server) serveBesides(cfg Config, security *security, keeper *atrest.Keeper, client kubernetes.Interface,
	agents *nodecall.Caller) (*networkapi.API, error) {
	if err := s.discoverIssuer(cfg, security); err != nil {
		return nil, err
	}
	metricsapi.Install(s.generic, client, agents)
	s.generic.Handler.NonGoRestfulMux.Handle(trust.Path, clusterapi.TellTrust(cfg.PKI, cfg.Servers, cfg.Restored))
	clusterapi.ServeMembers(s.generic.Handler.NonGoRestfulMux, cfg.Members)
	clusterapi.ServeBackups(s.generic.Handler.NonGoRestfulMux, cfg.Backups)
	return networkapi.Install(s.generic), s.tellKeys(keeper, cfg, client)
}

// complete checks what must be there, and fills in what tests leave out.
func (c *Config) complete() (err error) {
	if c.PKI == nil || c.Listener == nil {
		return errors.New("an API server needs certificates and a listener")
	}
	if c.Options == (options.Completed{}) {
		c.Options, err = options.New().Complete()
		if err != nil {
			return err
		}
	}
	return options.CheckRuntimeConfig(c.Options.RuntimeConfig, ownVersions())
}

func (s *Server) genericConfig(cfg Config, types *scheme.Set, kinds []resource.Definition,
) (*genericapiserver.Config, *atrest.Keeper, error) {
	c := genericapiserver.NewConfig(types.Codecs)
	if err := cfg.Options.ApplyTo(c); err != nil {
		return nil, nil, err
	}
	providers, err := encrypt(c, cfg.Options.Etcd)
	if err != nil {
		return nil, nil, err
	}
	keeper, err := keepKeys(cfg, c, kinds, providers)
	if err != nil {
		return nil, nil, err
	}
	c.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	c.LongRunningFunc = longRunning
	s.endWatches(c, types, cfg.Quorum)
	malformed.Refuse(c, types)
	fulllists.TakeTurns(c, types, goruntime.GOMAXPROCS(0))
	namer := extensions.Namer(types.Public)
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	c.OpenAPIConfig.Info.Title = "Everynode"
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	c.OpenAPIV3Config.Info.Title = "Everynode"
	return c, keeper, nil
}

var basicLongRunning = genericfilters.BasicLongRunningRequestCheck(
	sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))

// longRunning tells which requests may take as long as they do.
func longRunning(r *http.Request, info *request.RequestInfo) bool {
	return basicLongRunning(r, info) || !info.IsResourceRequest && info.Path == backup.Path
}

// secure sets up TLS for the network and the in-process way for ourselves.
func (s *Server) secure(c *genericapiserver.Config, cfg Config) error {
	serving := *cfg.Options.Serving
	serving.Listener = cfg.Listener
	serving.ServerCert.CertKey.CertFile, serving.ServerCert.CertKey.KeyFile = cfg.PKI.ServingFiles()
	if err := serving.ApplyTo(&c.SecureServing); err != nil {
		return fmt.Errorf("set up serving: %w", err)
	}
	c.SecureServing.ClientCA = clientCA{cfg.PKI}
	c.PublicAddress = cfg.AdvertiseAddress
	c.ExternalAddress = cfg.Listener.Addr().String()
	s.loopback = &restclient.Config{
		Host: inProcessHost, Transport: s.transport, BearerToken: uuid.NewString(), QPS: -1,
		WarningHandlerWithContext: restclient.NoWarnings{}, // they are for people; it writes Endpoints every two seconds
		ContentConfig: restclient.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
	c.LoopbackClientConfig = s.loopback
	return nil
}

// discoverIssuer serves who signs service account tokens, for those who check them.
func (s *Server) discoverIssuer(cfg Config, security *security) error {
	keys := cfg.Options.ServiceAccounts.KeysURI
	if keys == "" {
		keys = "https://" + net.JoinHostPort(cfg.AdvertiseAddress.String(), strconv.Itoa(cfg.AdvertisePort)) + authn.KeysPath
	}
	discovery, err := security.issuer.Discovery(keys)
	if err != nil {
		return fmt.Errorf("set up the issuer's discovery: %w", err)
	}
	for path, handler := range discovery {
		s.generic.Handler.NonGoRestfulMux.Handle(path, handler)
	}
	return nil
}

// callAgents makes the way to the agents of nodes. It follows changes of the keys.
func callAgents(cfg Config, security *security) *nodecall.Caller {
	agents := nodecall.New(cfg.PKI.NodeClientTLS(), security.getters.GetNode, security.revoked)
	cfg.PKI.OnChange(agents.Renew)
	return agents
}

// identify sets up who asks, and what they may.
func (s *Server) identify(c *genericapiserver.Config, security *security) {
	build := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return security.revoked.Guard(build(handler, c))
	}
	c.Authentication.Authenticator = union.New(&s.accounts, security.Request)
	c.Authentication.APIAudiences = security.audiences
	c.Authorization.Authorizer = security.authorizer
	c.RuleResolver = security.rules
}

// endWatches has the watches of all kinds end while the server is cut off from the others. The parts of this process
// can watch nowhere else, and servers of others tell what they know themselves.
func (s *Server) endWatches(c *genericapiserver.Config, types *scheme.Set, led func() context.Context) {
	if led == nil {
		return
	}
	c.AddReadyzChecks(quorum.Ready(led))
	build := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return build(quorum.Guard(api, types.Codecs, led, func(r *http.Request) bool {
			return inprocess.Is(r.Context()) || s.ofOthers(r.URL.Path)
		}), c)
	}
}

// Kinds lists the served kinds.
func (s *Server) Kinds() []resource.Definition { return s.kinds }

// InsideDoor returns the way for the control loops of this process to write
// below HTTP. It works once Run has been called.
func (s *Server) InsideDoor() *insidedoor.Door { return s.inside }

// BindingsWatched says whether webhooks or policies that somebody configured are about bindings of pods. As long as
// that is not known, they are.
func (s *Server) BindingsWatched() bool { return s.bindingsWatched() }

// ListWatch returns by what an informer in this process gets the very objects of this type
// that the server holds in memory, or nil if it holds none that way. They are never changed.
func (s *Server) ListWatch(of runtime.Object) cache.ListerWatcher {
	return s.storages.ListWatch(of)
}

// ConfigFor returns a client configuration that reaches the server in process
// under an account, with that account's rights. It works once Run has been called.
func (s *Server) ConfigFor(account user.Info) *restclient.Config {
	config := restclient.CopyConfig(s.loopback)
	config.BearerToken = s.accounts.TokenFor(account)
	return config
}

// InsideDoorFor returns the way for an account to write below HTTP. It works once
// Run has been called.
func (s *Server) InsideDoorFor(account user.Info) *insidedoor.Door { return s.inside.As(account) }

// ofOthers says whether a path leads to a server of others.
func (s *Server) ofOthers(path string) bool {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 4)
	return len(parts) >= 3 && parts[0] == "apis" && s.front != nil && s.front.LeadsToOthers(parts[1], parts[2])
}

// LoopbackConfig returns a client configuration that reaches the server in
// process with full rights. It works once Run has been called.
func (s *Server) LoopbackConfig() *restclient.Config { return restclient.CopyConfig(s.loopback) }

// Run serves until ctx ends, then lets running requests finish.
func (s *Server) Run(ctx context.Context) error {
	handler, run, err := s.front.Prepare()
	if err != nil {
		return err
	}
	s.transport.Serve(handler)
	if err := run(ctx); err != nil {
		return fmt.Errorf("run the API server: %w", err)
	}
	return nil
}

// network is where the Services of the cluster have their addresses.
func (c *Config) network() services.Network {
	n := services.Network{ServiceCIDR: c.ServiceCIDR, Port: c.AdvertisePort}
	if address, ok := netip.AddrFromSlice(c.AdvertiseAddress); ok && !c.Presence {
		n.Alone = netip.AddrPortFrom(address.Unmap(), uint16(c.AdvertisePort)) //nolint:gosec // A port.
	}
	return n
}
