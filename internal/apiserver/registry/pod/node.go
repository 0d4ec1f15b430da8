package pod

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/nodecall"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// NodeAccess reaches the agent on a pod's node for logs, exec, attach and
// port-forward.
type NodeAccess struct {
	pods, nodes *genericregistry.Store
	agents      *nodecall.Caller
}

// NewNodeAccess uses the given stores to find the node, and calls its agent.
func NewNodeAccess(pods, nodes *genericregistry.Store, agents *nodecall.Caller) *NodeAccess {
	return &NodeAccess{pods: pods, nodes: nodes, agents: agents}
}

// pod returns the pod with the name if it has a node.
func (a *NodeAccess) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	obj, err := a.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// agentURL is the address of a path on the agent of the node.
func (a *NodeAccess) agentURL(ctx context.Context, nodeName, path string, query url.Values) (*url.URL, error) {
	obj, err := a.nodes.Get(ctx, nodeName, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	location, ok := a.agents.URL(obj.(*corev1.Node), path, query)
	if !ok {
		return nil, nodecall.Unreachable(nodeName)
	}
	return location, nil
}

// container picks the container that a request means, or says that it must be named.
func container(p *corev1.Pod, name string) (string, error) {
	var known []string
	for _, c := range p.Spec.Containers {
		known = append(known, c.Name)
	}
	all := known
	for _, c := range p.Spec.InitContainers {
		all = append(all, c.Name)
	}
	if name == "" {
		switch {
		case len(p.Spec.Containers) == 1:
			return known[0], nil
		case len(p.Spec.InitContainers) > 0:
			return "", apierrors.NewBadRequest(fmt.Sprintf(
				"a container name must be specified for pod %s, choose one of: [%s] or one of the init containers: [%s]",
				p.Name, strings.Join(known, " "), strings.Join(all[len(known):], " "),
			))
		default:
			return "", apierrors.NewBadRequest(fmt.Sprintf(
				"a container name must be specified for pod %s, choose one of: [%s]", p.Name, strings.Join(known, " "),
			))
		}
	}
	if podfacts.Container(p, name) != nil {
		return name, nil
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, p.Name))
}

// LogREST streams a container's log from its node.
type LogREST struct{ access *NodeAccess }

// NewLogREST returns the pods/log subresource.
func NewLogREST(access *NodeAccess) *LogREST { return &LogREST{access: access} }

var _ rest.GetterWithOptions = (*LogREST)(nil)
var _ rest.StorageMetadata = (*LogREST)(nil)

// New implements rest.Storage.
func (r *LogREST) New() runtime.Object { return &corev1.Pod{} }

// Destroy implements rest.Storage.
func (r *LogREST) Destroy() {}

// ProducesMIMETypes implements rest.StorageMetadata.
func (r *LogREST) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

// ProducesObject implements rest.StorageMetadata.
func (r *LogREST) ProducesObject(string) any { return "" }

// OverrideMetricsVerb implements rest.MetricsVerbProvider: a log is no GET of an object.
func (r *LogREST) OverrideMetricsVerb(verb string) string {
	if verb == "GET" {
		return "CONNECT"
	}
	return verb
}

// NewGetOptions implements rest.GetterWithOptions.
func (r *LogREST) NewGetOptions() (runtime.Object, bool, string) {
	return &corev1.PodLogOptions{}, false, ""
}

// Get implements rest.GetterWithOptions: it returns a stream of the log.
func (r *LogREST) Get(ctx context.Context, name string, opts runtime.Object) (runtime.Object, error) {
	options, ok := opts.(*corev1.PodLogOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %#v", opts)
	}
	if err := checkLogOptions(name, options); err != nil {
		return nil, err
	}
	p, err := r.access.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if p.Spec.NodeName == "" {
		// Not scheduled yet: there is nothing to show, and that is no error.
		return &genericrest.LocationStreamer{}, nil
	}
	chosen, err := container(p, options.Container)
	if err != nil {
		return nil, err
	}
	location, err := r.access.agentURL(
		ctx, p.Spec.NodeName, fmt.Sprintf("/containerLogs/%s/%s/%s", p.Namespace, p.Name, chosen), logQuery(options),
	)
	if err != nil {
		return nil, err
	}
	return &genericrest.LocationStreamer{
		Location: location, Transport: r.access.agents.Transport(), ContentType: "text/plain", Flush: options.Follow,
		ResponseChecker: genericrest.NewGenericHttpResponseChecker(corev1.Resource("pods/log"), name),
		RedirectChecker: genericrest.PreventRedirects,
	}, nil
}

func checkLogOptions(name string, o *corev1.PodLogOptions) error {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, validation.IsNegativeErrorMsg))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(
			field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified",
		))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), name, errs)
}

func logQuery(o *corev1.PodLogOptions) url.Values {
	q := url.Values{}
	set := func(name string, on bool) {
		if on {
			q.Set(name, "true")
		}
	}
	number := func(name string, v *int64) {
		if v != nil {
			q.Set(name, strconv.FormatInt(*v, 10))
		}
	}
	set("follow", o.Follow)
	set("previous", o.Previous)
	set("timestamps", o.Timestamps)
	number("tailLines", o.TailLines)
	number("limitBytes", o.LimitBytes)
	number("sinceSeconds", o.SinceSeconds)
	if o.SinceTime != nil {
		q.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	return q
}

// ConnectREST passes an upgraded connection (exec, attach, portforward) through
// to the agent.
type ConnectREST struct {
	access  *NodeAccess
	decider authorizer.UnconditionalAuthorizer
	verb    string
	// options makes the empty options object of the subresource.
	options func() runtime.Object
}

// NewExecREST returns the pods/exec subresource. The decider says who may use it.
func NewExecREST(access *NodeAccess, decider authorizer.UnconditionalAuthorizer) *ConnectREST {
	return &ConnectREST{access: access, decider: decider, verb: "exec", options: func() runtime.Object {
		return &corev1.PodExecOptions{}
	}}
}

// NewAttachREST returns the pods/attach subresource.
func NewAttachREST(access *NodeAccess, decider authorizer.UnconditionalAuthorizer) *ConnectREST {
	return &ConnectREST{access: access, decider: decider, verb: "attach", options: func() runtime.Object {
		return &corev1.PodAttachOptions{}
	}}
}

// NewPortForwardREST returns the pods/portforward subresource.
func NewPortForwardREST(access *NodeAccess, decider authorizer.UnconditionalAuthorizer) *ConnectREST {
	return &ConnectREST{access: access, decider: decider, verb: "portForward", options: func() runtime.Object {
		return &corev1.PodPortForwardOptions{}
	}}
}

var _ rest.Connecter = (*ConnectREST)(nil)

// New implements rest.Storage.
func (r *ConnectREST) New() runtime.Object { return r.options() }

// Destroy implements rest.Storage.
func (r *ConnectREST) Destroy() {}

// ConnectMethods implements rest.Connecter: GET for WebSocket, POST for SPDY.
func (r *ConnectREST) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// NewConnectOptions implements rest.Connecter.
func (r *ConnectREST) NewConnectOptions() (runtime.Object, bool, string) {
	return r.options(), false, ""
}

// Connect implements rest.Connecter.
func (r *ConnectREST) Connect(ctx context.Context, name string, options runtime.Object,
	responder rest.Responder) (http.Handler, error) {
	if err := mayCreate(ctx, r.decider); err != nil {
		return nil, err
	}
	p, err := r.access.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if p.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", name))
	}
	path := fmt.Sprintf("/%s/%s/%s", r.verb, p.Namespace, p.Name)
	wanted, query := connectQuery(options)
	if r.verb != "portForward" {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			return nil, apierrors.NewBadRequest(fmt.Sprintf(
				"cannot exec or attach in a container in a completed pod; current phase is %s", p.Status.Phase,
			))
		}
		chosen, err := container(p, wanted)
		if err != nil {
			return nil, err
		}
		path += "/" + chosen
	}
	location, err := r.access.agentURL(ctx, p.Spec.NodeName, path, query)
	if err != nil {
		return nil, err
	}
	handler := proxy.NewUpgradeAwareHandler(
		location, r.access.agents.TransportTo(p.Spec.NodeName), false, true, upgradeErrors{responder},
	)
	return handler, nil
}

// connectQuery turns the options into the agent's query.
func connectQuery(options runtime.Object) (container string, q url.Values) {
	q = url.Values{}
	streams := func(stdin, stdout, stderr, tty bool) {
		for name, on := range map[string]bool{"input": stdin, "output": stdout, "error": stderr, "tty": tty} {
			if on {
				q.Set(name, "1")
			}
		}
	}
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		streams(o.Stdin, o.Stdout, o.Stderr, o.TTY)
		for _, word := range o.Command {
			q.Add("command", word)
		}
		return o.Container, q
	case *corev1.PodAttachOptions:
		streams(o.Stdin, o.Stdout, o.Stderr, o.TTY)
		return o.Container, q
	case *corev1.PodPortForwardOptions:
		for _, port := range o.Ports {
			q.Add("port", strconv.Itoa(int(port)))
		}
	}
	return "", q
}

// upgradeErrors reports a failed connection to the client as an API error.
type upgradeErrors struct{ responder rest.Responder }

// Error implements proxy.ErrorResponder.
func (u upgradeErrors) Error(_ http.ResponseWriter, _ *http.Request, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		err = apierrors.NewInternalError(fmt.Errorf("call the node's agent: %w", err))
	}
	u.responder.Error(err)
}
