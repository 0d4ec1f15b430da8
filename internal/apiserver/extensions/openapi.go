package extensions

import (
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
)

// What is told of the kinds of the two servers. Each has its own definitions only:
// building those of all kinds three times would take time at every start.
var (
	customResourceDefinitions common.GetOpenAPIDefinitions = crdopenapi.GetOpenAPIDefinitions
	apiServices               common.GetOpenAPIDefinitions = aggregatoropenapi.GetOpenAPIDefinitions
)

// Namer names definitions. All servers of the chain need the same one: a definition
// that two of them have, such as ObjectMeta, must be the same in both to be merged.
func Namer(schemes ...*runtime.Scheme) *apiopenapi.DefinitionNamer {
	return apiopenapi.NewDefinitionNamer(append(schemes, apiextensionsserver.Scheme, aggregatorscheme.Scheme)...)
}

func setOpenAPI(c *genericapiserver.Config, definitions common.GetOpenAPIDefinitions, schemes []*runtime.Scheme) {
	namer, info := Namer(schemes...), c.OpenAPIConfig.Info
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	c.OpenAPIConfig.Info, c.OpenAPIV3Config.Info = info, info
}
