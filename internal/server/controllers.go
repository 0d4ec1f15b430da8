package server

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	restclient "k8s.io/client-go/rest"
)

// unversioned prepares a configuration for paths outside the API groups.
func unversioned(c *restclient.Config) *restclient.Config {
	c.GroupVersion = &schema.GroupVersion{}
	c.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	return c
}

func (s *Server) runControllers(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
