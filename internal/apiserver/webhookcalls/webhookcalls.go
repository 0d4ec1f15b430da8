// Package webhookcalls is how webhooks are called.
package webhookcalls

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/apiserver/podaccess"
	"github.com/everynode/everynode/internal/untrusted/bounded"
)

// What a webhook may answer, in bytes: so much for anything, and in proportion to what
// it was asked, since a conversion answers with as many objects as it got.
const (
	answerFloor  = 16 << 20
	answerFactor = 8
)

// New are how webhooks are called: through the agents of nodes if there is no
// other way. An answer that never ends is cut. The own groups are those that nobody but this server answers for.
func New(c *genericapiserver.Config, pods *podaccess.Access,
	own sets.Set[string]) webhook.AuthenticationInfoResolverWrapper {
	ourselves := restclient.CopyConfig(c.LoopbackClientConfig)
	ourselves.Transport = addedOnly{c.LoopbackClientConfig.Transport, own}
	calls := webhook.NewDefaultAuthenticationInfoResolverWrapper(&http.Transport{DialContext: pods.DialService}, nil,
		ourselves, c.TracerProvider)
	cut := func(config *restclient.Config, err error) (*restclient.Config, error) {
		if err != nil {
			return nil, err
		}
		config = restclient.CopyConfig(config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedAnswers{next} })
		return config, nil
	}
	return func(known webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		resolver := calls(known)
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(host string) (*restclient.Config,
				error) {
				return cut(resolver.ClientConfigFor(host))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*restclient.Config, error) {
				return cut(resolver.ClientConfigForService(name, namespace, port))
			},
		}
	}
}

// addedOnly is the way to a webhook that is given as the API server itself, which calls
// it with all rights. It leads to what servers of others serve; otherwise, whoever may
// write webhooks could have the server do anything that begins with a POST.
type addedOnly struct {
	next http.RoundTripper
	own  sets.Set[string]
}

// RoundTrip implements http.RoundTripper.
func (a addedOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if len(parts) < 4 || parts[0] != "apis" || a.own.Has(parts[1]) || strings.Contains(r.URL.Path, "..") {
		return nil, fmt.Errorf(
			"the API server itself is no webhook at %s; it leads to webhooks of an APIService, at /apis/GROUP/VERSION/NAME",
			r.URL.Path,
		)
	}
	return a.next.RoundTrip(r)
}

// boundedAnswers cuts answers that are too large.
type boundedAnswers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit := answerFloor + answerFactor*max(r.ContentLength, 0)
	response.Body = bounded.Body(response.Body, limit)
	return response, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (b boundedAnswers) WrappedRoundTripper() http.RoundTripper { return b.next }
