package extensions

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
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
	server *aggregatorserver.APIAggregator
}

// NewAggregator puts the aggregator in front of a server.
func NewAggregator(c Config, front Front, behind *genericapiserver.GenericAPIServer, custom *CustomResources) (*Aggregator, error) {
	config := c.copied()
	setOpenAPI(&config, apiServices, c.Schemes)
	// The aggregator serves one for all servers of the chain instead.
	config.SkipOpenAPIInstallation = true
	config.MergedResourceConfig = serverstorage.NewResourceConfig()
	stored := apiregistrationv1.SchemeGroupVersion
	config.MergedResourceConfig.EnableVersions(stored)
	config.RESTOptionsGetter = c.Storage(aggregatorscheme.Codecs.LegacyCodec(stored),
		runtime.NewMultiGroupVersioner(stored, schema.GroupKind{Group: stored.Group}))
	extended := aggregatorserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: config, SharedInformerFactory: c.Informers},
		ExtraConfig: aggregatorserver.ExtraConfig{
			ProxyClientCertFile: front.CertFile, ProxyClientKeyFile: front.KeyFile,
			ProxyTransport:  &http.Transport{DialContext: front.Dial},
			ServiceResolver: c.Services,
			// A server of others must not send us, with our certificate, to somebody else.
			RejectForwardingRedirects: true,
		},
	}
	server, err := extended.Complete().NewWithDelegate(behind)
	if err != nil {
		return nil, fmt.Errorf("build the aggregator: %w", err)
	}
	a := &Aggregator{server}
	a.listGroups(config.Serializer, front.Offered)
	if err := a.register(behind, custom, front.Offered); err != nil {
		return nil, err
	}
	return a, nil
}

// Prepare makes the chain ready. It returns the handler of all requests, and what runs
// the server.
func (a *Aggregator) Prepare() (http.Handler, func(context.Context) error, error) {
	prepared, err := a.server.PrepareRun()
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the aggregator: %w", err)
	}
	return a.server.GenericAPIServer.Handler, prepared.Run, nil
}
