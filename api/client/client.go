// Package client reads and writes Everynode's own kinds, at any API that serves
// them.
package client

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

// RolloutPolicies reads and writes the policies of a namespace.
type RolloutPolicies = gentype.ClientWithList[*v1alpha1.RolloutPolicy, *v1alpha1.RolloutPolicyList]

// DaemonSetRollouts reads and writes the rollouts of a namespace.
type DaemonSetRollouts = gentype.ClientWithList[*v1alpha1.DaemonSetRollout, *v1alpha1.DaemonSetRolloutList]

// NodeStartups reads and writes NodeStartups.
type NodeStartups = gentype.ClientWithList[*v1alpha1.NodeStartup, *v1alpha1.NodeStartupList]

// DaemonSetVariants reads and writes the variants of a namespace.
type DaemonSetVariants = gentype.ClientWithList[*v1alpha1.DaemonSetVariant, *v1alpha1.DaemonSetVariantList]

// Client is a client of everynode.io/v1alpha1.
type Client struct{ api rest.Interface }

var (
	scheme         = newScheme()
	codecs         = newCodecs()
	parameterCodec = runtime.NewParameterCodec(scheme)
)

// marking are codecs that read objects with the names of the fields that this program does not know, and write none by
// which these would be lost.
type marking struct {
	serializer.WithoutConversionCodecFactory
}

func newCodecs() marking {
	return marking{serializer.NewCodecFactory(scheme).WithoutConversion().(serializer.WithoutConversionCodecFactory)}
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer: it is JSON alone.
func (m marking) SupportedMediaTypes() []runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(m.WithoutConversionCodecFactory.SupportedMediaTypes(),
		runtime.ContentTypeJSON)
	info.Serializer = newer.ForClients(scheme)
	return []runtime.SerializerInfo{info}
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(s))
	metav1.AddToGroupVersion(s, metav1.Unversioned)
	return s
}

// NewForConfig makes a client for the API that a configuration reaches.
func NewForConfig(config *rest.Config) (*Client, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &v1alpha1.GroupVersion, "/apis"
	// The kinds have no binary form.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = codecs
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	api, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", v1alpha1.GroupVersion, err)
	}
	return &Client{api}, nil
}

// RolloutPolicies returns the policies of a namespace; "" means all, for reading.
func (c *Client) RolloutPolicies(namespace string) *RolloutPolicies {
	return gentype.NewClientWithList[*v1alpha1.RolloutPolicy, *v1alpha1.RolloutPolicyList](
		"rolloutpolicies", c.api, parameterCodec, namespace,
		func() *v1alpha1.RolloutPolicy { return &v1alpha1.RolloutPolicy{} },
		func() *v1alpha1.RolloutPolicyList { return &v1alpha1.RolloutPolicyList{} },
	)
}

// DaemonSetRollouts returns the rollouts of a namespace; "" means all, for reading.
func (c *Client) DaemonSetRollouts(namespace string) *DaemonSetRollouts {
	return gentype.NewClientWithList[*v1alpha1.DaemonSetRollout, *v1alpha1.DaemonSetRolloutList](
		"daemonsetrollouts", c.api, parameterCodec, namespace,
		func() *v1alpha1.DaemonSetRollout { return &v1alpha1.DaemonSetRollout{} },
		func() *v1alpha1.DaemonSetRolloutList { return &v1alpha1.DaemonSetRolloutList{} },
	)
}

// NodeStartups returns the NodeStartups, which are in no namespace.
func (c *Client) NodeStartups() *NodeStartups {
	return gentype.NewClientWithList[*v1alpha1.NodeStartup, *v1alpha1.NodeStartupList](
		"nodestartups", c.api, parameterCodec, "",
		func() *v1alpha1.NodeStartup { return &v1alpha1.NodeStartup{} },
		func() *v1alpha1.NodeStartupList { return &v1alpha1.NodeStartupList{} },
	)
}

// DaemonSetVariants returns the variants of a namespace, "" for all.
func (c *Client) DaemonSetVariants(namespace string) *DaemonSetVariants {
	return gentype.NewClientWithList[*v1alpha1.DaemonSetVariant, *v1alpha1.DaemonSetVariantList](
		"daemonsetvariants", c.api, parameterCodec, namespace,
		func() *v1alpha1.DaemonSetVariant { return &v1alpha1.DaemonSetVariant{} },
		func() *v1alpha1.DaemonSetVariantList { return &v1alpha1.DaemonSetVariantList{} },
	)
}

// ListWatch returns by what an informer reads all objects of one of the kinds, or nil for another kind.
func (c *Client) ListWatch(of runtime.Object) cache.ListerWatcher {
	switch of.(type) {
	case *v1alpha1.RolloutPolicy:
		return listWatch(c.RolloutPolicies(metav1.NamespaceAll))
	case *v1alpha1.DaemonSetRollout:
		return listWatch(c.DaemonSetRollouts(metav1.NamespaceAll))
	case *v1alpha1.NodeStartup:
		return listWatch(c.NodeStartups())
	case *v1alpha1.DaemonSetVariant:
		return listWatch(c.DaemonSetVariants(metav1.NamespaceAll))
	}
	return nil
}

// reader lists and watches the objects of a kind.
type reader[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func listWatch[L runtime.Object](by reader[L]) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return by.List(ctx, o)
		},
		WatchFuncWithContext: by.Watch,
	}
}

// Strange names the objects that hold what this program, or the API's, does not know, since a newer one wrote it.
func (c *Client) Strange(ctx context.Context) (out []string, err error) {
	cached := metav1.ListOptions{ResourceVersion: "0"} // what the API server has in memory costs it little
	for _, kind := range []struct {
		name string
		all  func() (runtime.Object, error)
	}{
		{"rolloutpolicy", func() (runtime.Object, error) { return c.RolloutPolicies("").List(ctx, cached) }},
		{"daemonsetrollout", func() (runtime.Object, error) { return c.DaemonSetRollouts("").List(ctx, cached) }},
		{"daemonsetvariant", func() (runtime.Object, error) { return c.DaemonSetVariants("").List(ctx, cached) }},
		{"nodestartup", func() (runtime.Object, error) { return c.NodeStartups().List(ctx, cached) }},
	} {
		list, err := kind.all()
		if err == nil {
			err = meta.EachListItem(list, func(item runtime.Object) error {
				if o := item.(metav1.Object); newer.Fields(o) != "" {
					out = append(out, kind.name+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
				}
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("look for what a newer program wrote into each %s: %w", kind.name, err)
		}
	}
	return out, nil
}
