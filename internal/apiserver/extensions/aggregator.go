package extensions

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/everynode/everynode/internal/apiserver/backends"
	"github.com/everynode/everynode/internal/apiserver/starthook"
)

// Front is how the aggregator reaches the servers of others.
type Front struct {
	// CertFile and KeyFile are what it shows to them. They are read again when they change.
	CertFile, KeyFile string
	// Dial leads to what the ServiceResolver names.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Offered are versions that this process serves without an APIService, so that
	// anybody may make one and take them over.
	Offered []schema.GroupVersion
}

// Aggregator is the first server of the chain.
type Aggregator struct {
	server   *aggregatorserver.APIAggregator
	backends *backends.Keeper
	swagger  *common.Config
	specs    *common.OpenAPIV3Config
}

// discoveryHook is the library's way to learn what servers of others have. It reads what
// they send without an end, and two that hang hold up all others; package backends asks
// them instead. The library's ways to their documents of OpenAPI, and to whether they are
// available, are not begun either.
const discoveryHook = "apiservice-discovery-controller"

// NewAggregator puts the aggregator in front of a server.
func NewAggregator(c Config, front Front, behind *genericapiserver.GenericAPIServer,
	custom *CustomResources) (*Aggregator, error) {
	config := c.copied()
	setOpenAPI(&config, apiServices, c.Schemes)
	// The aggregator serves one for all servers of the chain instead.
	config.SkipOpenAPIInstallation = true
	config.MergedResourceConfig = serverstorage.NewResourceConfig()
	stored := apiregistrationv1.SchemeGroupVersion
	config.MergedResourceConfig.EnableVersions(stored)
	config.RESTOptionsGetter = c.Storage(aggregatorscheme.Codecs.LegacyCodec(stored),
		runtime.NewMultiGroupVersioner(stored, schema.GroupKind{Group: stored.Group}))
	config.DisabledPostStartHooks = sets.NewString(append(config.DisabledPostStartHooks.List(), discoveryHook)...)
	extended := aggregatorserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: config, SharedInformerFactory: c.Informers},
		ExtraConfig: aggregatorserver.ExtraConfig{
			ProxyClientCertFile: front.CertFile, ProxyClientKeyFile: front.KeyFile,
			ProxyTransport:  &http.Transport{DialContext: front.Dial},
			ServiceResolver: c.Services,
			// A server of others must not send us, with our certificate, to somebody else.
			RejectForwardingRedirects:                 true,
			DisableRemoteAvailableConditionController: true,
		},
	}
	server, err := extended.Complete().NewWithDelegate(behind)
	if err != nil {
		return nil, fmt.Errorf("build the aggregator: %w", err)
	}
	a := &Aggregator{server: server, swagger: config.OpenAPIConfig, specs: config.OpenAPIV3Config}
	if err := a.askBackends(c, front); err != nil {
		return nil, err
	}
	a.listGroups(config.Serializer, front.Offered)
	if err := a.register(behind, custom, front.Offered); err != nil {
		return nil, err
	}
	return a, nil
}

// askBackends has the servers of others be asked what they have, from the moment that the
// server runs.
func (a *Aggregator) askBackends(c Config, front Front) error {
	generic := a.server.GenericAPIServer
	client, err := aggregatorclient.NewForConfig(generic.LoopbackClientConfig)
	if err != nil {
		return fmt.Errorf("make the client of APIServices: %w", err)
	}
	certificate, err := dynamiccertificates.NewDynamicServingContentFromFiles(
		"everynode/backends", front.CertFile, front.KeyFile,
	)
	if err != nil {
		return fmt.Errorf("read the certificate for servers of others: %w", err)
	}
	a.backends, err = backends.New(backends.Config{
		APIServices: a.server.APIRegistrationInformers.Apiregistration().V1().APIServices(),
		Client:      client.ApiregistrationV1(),
		Services:    c.Informers.Core().V1().Services(), EndpointSlices: c.Informers.Discovery().V1().EndpointSlices(),
		Resolve: c.Services.ResolveEndpoint, Dial: front.Dial, Certificate: certificate.CurrentCertKeyContent,
		Discovery: generic.AggregatedDiscoveryGroupManager,
	})
	if err != nil {
		return err
	}
	return generic.AddPostStartHook("everynode/backends", starthook.UnlessStopped(func(ctx context.Context) error {
		go certificate.Run(ctx, 1)
		return a.backends.Run(ctx)
	}))
}

// LeadsToOthers says whether a version is served by a server of others.
func (a *Aggregator) LeadsToOthers(group, version string) bool {
	return a.backends.Asks(group, version)
}

// Prepare makes the chain ready. It returns the handler of all requests, and what runs
// the server.
func (a *Aggregator) Prepare() (http.Handler, func(context.Context) error, error) {
	// The aggregator's own PrepareRun would add its way to the documents of others.
	prepared := a.server.GenericAPIServer.PrepareRun()
	if err := a.backends.ServeOpenAPI(a.server.GenericAPIServer, a.swagger, a.specs); err != nil {
		return nil, nil, fmt.Errorf("prepare the aggregator: %w", err)
	}
	return a.server.GenericAPIServer.Handler, prepared.RunWithContext, nil
}
