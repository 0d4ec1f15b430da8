package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/registry/rest"
)

// target is where a request goes.
type target struct {
	location  *url.URL
	transport http.RoundTripper
	// check may refuse a request for a path there; nil takes all.
	check func(method, path string) error
}

// REST passes requests on.
type REST struct {
	// kind is the word for what is named, such as "pod".
	kind string
	// options makes the empty options of the subresource.
	options func() runtime.Object
	find    func(ctx context.Context, id id) (target, error)
}

var _ rest.Connecter = (*REST)(nil)

// New implements rest.Storage.
func (r *REST) New() runtime.Object { return r.options() }

// Destroy implements rest.Storage.
func (r *REST) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (r *REST) ConnectMethods() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions,
	}
}

// NewConnectOptions implements rest.Connecter: the rest of the path is the option "path".
func (r *REST) NewConnectOptions() (runtime.Object, bool, string) { return r.options(), true, "path" }

// Connect implements rest.Connecter.
func (r *REST) Connect(ctx context.Context, name string, options runtime.Object,
	responder rest.Responder) (http.Handler, error) {
	wanted, err := parse(name, r.kind)
	if err != nil {
		return nil, err
	}
	path, err := pathOf(options)
	if err != nil {
		return nil, err
	}
	t, err := r.find(ctx, wanted)
	if err != nil {
		return nil, err
	}
	t.location.Path = utilnet.JoinPreservingTrailingSlash(t.location.Path, path)
	handler := proxy.NewUpgradeAwareHandler(t.location, t.transport, true, false, unreachable{responder})
	if t.check == nil {
		return handler, nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := t.check(req.Method, path); err != nil {
			responder.Error(err)
			return
		}
		handler.ServeHTTP(w, req)
	}), nil
}

func pathOf(options runtime.Object) (string, error) {
	switch o := options.(type) {
	case *corev1.PodProxyOptions:
		return o.Path, nil
	case *corev1.ServiceProxyOptions:
		return o.Path, nil
	case *corev1.NodeProxyOptions:
		return o.Path, nil
	}
	return "", fmt.Errorf("invalid options object: %#v", options)
}

// id is a name with the port and scheme that are asked for, if any.
type id struct{ scheme, name, port string }

func parse(text, kind string) (id, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(text)
	if !ok {
		return id{}, apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", kind, text))
	}
	return id{scheme, name, port}, nil
}

// unreachable tells what went wrong on the way, as an error of the API.
type unreachable struct{ responder rest.Responder }

// Error implements proxy.ErrorResponder.
func (u unreachable) Error(_ http.ResponseWriter, _ *http.Request, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		err = apierrors.NewServiceUnavailable("error trying to reach service: " + strings.TrimSpace(err.Error()))
	}
	u.responder.Error(err)
}
