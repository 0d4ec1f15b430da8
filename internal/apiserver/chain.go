package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/everynode/everynode/internal/apiserver/extensions"
	"github.com/everynode/everynode/internal/apiserver/podaccess"
	"github.com/everynode/everynode/internal/apiserver/scheme"
	"github.com/everynode/everynode/internal/pki"
)

// chain is what the servers of added kinds share with ours.
func (s *Server) chain(c *genericapiserver.Config, types *scheme.Set, storages *storageOptions, client kubernetes.Interface, pods *podaccess.Access) extensions.Config {
	return extensions.Config{
		Generic: c, Informers: s.informers, Schemes: []*runtime.Scheme{types.Public},
		Storage: func(codec runtime.Codec, version runtime.GroupVersioner) generic.RESTOptionsGetter {
			return foreign{storages, codec, version}
		},
		Services: podaccess.NewServices(client), Webhooks: webhookCalls(c, pods),
	}
}

// front is how servers of others are reached: as webhooks are. What we say of metrics
// holds until somebody has a better word.
func front(keys *pki.Bundle, pods *podaccess.Access) extensions.Front {
	f := extensions.Front{Dial: pods.Dial, Offered: []schema.GroupVersion{metricsv1beta1.SchemeGroupVersion}}
	f.CertFile, f.KeyFile = keys.FrontProxyFiles()
	return f
}
