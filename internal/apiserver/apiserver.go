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
	"strconv"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/apiserver/insidedoor"
	"github.com/everynode/everynode/internal/apiserver/metricsapi"
	"github.com/everynode/everynode/internal/apiserver/openapi"
	"github.com/everynode/everynode/internal/apiserver/registry"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/scheme"
	"github.com/everynode/everynode/internal/pki"
)

// watchGrace is how long a server that stops waits for its watches to end. Without
// it they are not even told, and a single `kubectl get -w` holds the server up.
const watchGrace = 2 * time.Second

// inProcessHost is the host of in-process requests; nothing resolves it.
const inProcessHost = "https://everynode.invalid"

// Config is what an API server needs from its surroundings.
type Config struct {
	// PKI holds the cluster's CA, the serving certificate and the keys.
	PKI *pki.Bundle
	// Listener takes the TLS connections of clients.
	Listener net.Listener
	// AdvertiseAddress is where pods and nodes reach the server.
	AdvertiseAddress net.IP
	AdvertisePort    int
	// OpenStorage opens the embedded database. When nil, EtcdEndpoints are used.
	OpenStorage   StorageOpener
	EtcdEndpoints []string
	// ServiceCIDR is where the addresses of Services come from.
	ServiceCIDR *net.IPNet
}

// Server is an API server that is ready to run.
type Server struct {
	generic   *genericapiserver.GenericAPIServer
	loopback  *restclient.Config
	transport *inProcess
	informers informers.SharedInformerFactory
	kinds     []resource.Definition
	inside    *insidedoor.Door
}

// New builds the server. Nothing listens or runs yet.
func New(cfg Config) (*Server, error) {
	if cfg.PKI == nil || cfg.Listener == nil {
		return nil, errors.New("an API server needs certificates and a listener")
	}
	kinds := registry.Kinds()
	types := scheme.New(kinds)
	s := &Server{transport: newInProcess(), kinds: kinds}
	generic := genericConfig(types)
	if err := s.secure(generic, cfg); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return nil, fmt.Errorf("make the in-process client: %w", err)
	}
	s.informers = informers.NewSharedInformerFactory(client, 0)
	security, err := newSecurity(cfg, client, s.informers)
	if err != nil {
		return nil, err
	}
	generic.Authentication.Authenticator = security.Request
	generic.Authentication.APIAudiences = security.audiences
	generic.Authorization.Authorizer = security.authorizer
	generic.RuleResolver = security.rules
	if err := admit(generic, client, s.loopback, s.informers, security); err != nil {
		return nil, err
	}
	backend := storagebackend.NewDefaultConfig(storagePrefix, nil)
	backend.Transport.ServerList = cfg.EtcdEndpoints
	generic.RESTOptionsGetter = &storageOptions{types: types, tracker: generic.StorageObjectCountTracker, backend: *backend, open: cfg.OpenStorage}

	s.generic, err = generic.Complete(s.informers).New("everynode", genericapiserver.NewEmptyDelegateWithCustomHandler(http.NotFoundHandler()))
	if err != nil {
		return nil, fmt.Errorf("build the API server: %w", err)
	}
	installation := registry.Dependencies{
		Scheme: types.Scheme, Codecs: types.Codecs, ParameterCodec: types.ParameterCodec, Storage: generic.RESTOptionsGetter,
		NodeClientTLS: cfg.PKI.NodeClientTLS(), ServiceCIDR: cfg.ServiceCIDR,
		Tokens: security.Token, Audiences: security.audiences, Authorizer: generic.Authorization.Authorizer,
		Rules: security.rules, ServiceAccountTokens: authn.NewTokenREST(security.issuer),
	}
	served, err := registry.Install(s.generic, kinds, installation)
	if err != nil {
		return nil, err
	}
	s.inside = insidedoor.New(insidedoor.Config{
		Scheme: types.Scheme, Admission: generic.AdmissionControl, Equivalents: s.generic.EquivalentResourceRegistry, Storages: served,
	})
	discovery, err := security.issuer.Discovery("https://" + net.JoinHostPort(cfg.AdvertiseAddress.String(), strconv.Itoa(cfg.AdvertisePort)))
	if err != nil {
		return nil, fmt.Errorf("set up the issuer's discovery: %w", err)
	}
	for path, handler := range discovery {
		s.generic.Handler.NonGoRestfulMux.Handle(path, handler)
	}
	metricsapi.Install(s.generic, client, cfg.PKI.NodeClientTLS())
	serveNoExtensions(s.generic.Handler.NonGoRestfulMux)
	if err := s.addHooks(cfg, client, security); err != nil {
		return nil, err
	}
	return s, nil
}

func genericConfig(types *scheme.Set) *genericapiserver.Config {
	c := genericapiserver.NewConfig(types.Codecs)
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	c.FeatureGate = utilfeature.DefaultFeatureGate
	c.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	c.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight = 2000, 1000
	c.ShutdownWatchTerminationGracePeriod = watchGrace
	refuseNonsense(c, types)
	namer := apiopenapi.NewDefinitionNamer(types.Public)
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	c.OpenAPIConfig.Info.Title = "Everynode"
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	c.OpenAPIV3Config.Info.Title = "Everynode"
	return c
}

// secure sets up TLS for the network and the in-process way for ourselves.
func (s *Server) secure(c *genericapiserver.Config, cfg Config) error {
	certFile, keyFile := cfg.PKI.ServingFiles()
	serving, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", certFile, keyFile)
	if err != nil {
		return fmt.Errorf("load the serving certificate: %w", err)
	}
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", cfg.PKI.CAPEM())
	if err != nil {
		return fmt.Errorf("load the client CA: %w", err)
	}
	c.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: cfg.Listener, Cert: serving, ClientCA: clientCA, HTTP2MaxStreamsPerConnection: 1000,
	}
	c.PublicAddress = cfg.AdvertiseAddress
	c.ExternalAddress = cfg.Listener.Addr().String()
	s.loopback = &restclient.Config{
		Host: inProcessHost, Transport: s.transport, BearerToken: uuid.NewString(), QPS: -1,
		ContentConfig: restclient.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
	c.LoopbackClientConfig = s.loopback
	return nil
}

// Kinds lists the served kinds.
func (s *Server) Kinds() []resource.Definition { return s.kinds }

// InsideDoor returns the way for the control loops of this process to write
// below HTTP. It works once Run has been called.
func (s *Server) InsideDoor() *insidedoor.Door { return s.inside }

// LoopbackConfig returns a client configuration that reaches the server in
// process with full rights. It works once Run has been called.
func (s *Server) LoopbackConfig() *restclient.Config { return restclient.CopyConfig(s.loopback) }

// Run serves until ctx ends, then lets running requests finish.
func (s *Server) Run(ctx context.Context) error {
	prepared := s.generic.PrepareRun()
	s.transport.serve(prepared.Handler)
	if err := prepared.RunWithContext(ctx); err != nil {
		return fmt.Errorf("run the API server: %w", err)
	}
	return nil
}
