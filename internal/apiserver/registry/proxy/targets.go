package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/everynode/everynode/internal/apiserver/nodecall"
	"github.com/everynode/everynode/internal/apiserver/podaccess"
	"github.com/everynode/everynode/internal/node"
)

// Getter finds an object by its name, in the namespace of the context.
type Getter interface {
	Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error)
}

// defaultPort is that of HTTP, for pods that name no port.
const defaultPort = 80

// NewPods returns the pods/proxy subresource.
func NewPods(pods Getter, access *podaccess.Access) *REST {
	return &REST{kind: "pod", options: func() runtime.Object {
		return &corev1.PodProxyOptions{}
	}, find: func(ctx context.Context, id id) (target, error) {
		obj, err := pods.Get(ctx, id.name, &metav1.GetOptions{})
		if err != nil {
			return target{}, err
		}
		p := obj.(*corev1.Pod)
		port := id.port
		for i := 0; port == "" && i < len(p.Spec.Containers); i++ {
			if ports := p.Spec.Containers[i].Ports; len(ports) > 0 {
				port = strconv.Itoa(int(ports[0].ContainerPort))
			}
		}
		ip, err := podaccess.Proxyable(p.Status.PodIP)
		if err != nil {
			return target{}, apierrors.NewBadRequest(err.Error())
		}
		number, err := numberOf(id.scheme, port)
		if err != nil {
			return target{}, err
		}
		host := podaccess.PodHost(p.Spec.NodeName, netip.AddrPortFrom(ip, number))
		return target{location: &url.URL{Scheme: id.scheme, Host: host}, transport: access.Transport()}, nil
	}}
}

func numberOf(scheme, port string) (uint16, error) {
	if port == "" {
		if scheme == "https" {
			return 443, nil
		}
		return defaultPort, nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid port %q", port))
	}
	return uint16(number), nil
}

// NewServices returns the services/proxy subresource. A request goes to an endpoint that
// is a pod with that address, so that nobody is led elsewhere by endpoints of his own.
func NewServices(services, pods Getter, endpoints *podaccess.Services, access *podaccess.Access) *REST {
	return &REST{kind: "service", options: func() runtime.Object {
		return &corev1.ServiceProxyOptions{}
	}, find: func(ctx context.Context, id id) (target, error) {
		port := id.port
		if number, err := strconv.ParseInt(port, 10, 64); err == nil {
			obj, err := services.Get(ctx, id.name, &metav1.GetOptions{})
			if err != nil {
				return target{}, err
			}
			found := false
			for _, p := range obj.(*corev1.Service).Spec.Ports {
				if int64(p.Port) == number {
					port, found = p.Name, true
					break
				}
			}
			if !found {
				return target{}, apierrors.NewServiceUnavailable(fmt.Sprintf(
					"no service port %d found for service %q", number, id.name,
				))
			}
		}
		host, err := endpoints.Endpoint(ctx, request.NamespaceValue(ctx), id.name, port, func(e *discoveryv1.Endpoint) bool {
			return isPod(ctx, pods, e)
		})
		if err != nil {
			return target{}, err
		}
		return target{location: &url.URL{Scheme: id.scheme, Host: host}, transport: access.Transport()}, nil
	}}
}

// isPod says whether an endpoint is a pod of the namespace, on the node that it names
// and with the address that it names.
func isPod(ctx context.Context, pods Getter, e *discoveryv1.Endpoint) bool {
	ref := e.TargetRef
	if ref == nil || ref.Kind != "Pod" || ref.Namespace != request.NamespaceValue(ctx) {
		return false
	}
	obj, err := pods.Get(ctx, ref.Name, &metav1.GetOptions{})
	if err != nil {
		return false
	}
	p := obj.(*corev1.Pod)
	if e.NodeName == nil || *e.NodeName != p.Spec.NodeName {
		return false
	}
	for _, ip := range p.Status.PodIPs {
		if ip.IP == e.Addresses[0] {
			return true
		}
	}
	return false
}

// NewNodes returns the nodes/proxy subresource. Without a port, or with the agent's, a
// request goes to the agent, in the server's name.
func NewNodes(nodes Getter, agents *nodecall.Caller, access *podaccess.Access) *REST {
	return &REST{kind: "node", options: func() runtime.Object {
		return &corev1.NodeProxyOptions{}
	}, find: func(ctx context.Context, id id) (target, error) {
		obj, err := nodes.Get(ctx, id.name, &metav1.GetOptions{})
		if err != nil {
			return target{}, err
		}
		n := obj.(*corev1.Node)
		if id.port == "" || id.port == strconv.Itoa(int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)) {
			location, ok := agents.URL(n, "", nil)
			if !ok {
				return target{}, nodecall.Unreachable(n.Name)
			}
			return target{location: location, transport: agents.TransportTo(n.Name), check: checkAgentPath}, nil
		}
		port, err := numberOf(id.scheme, id.port)
		if err != nil {
			return target{}, err
		}
		host := node.Address(n, corev1.NodeInternalIP)
		if _, err := podaccess.Proxyable(host); err != nil {
			return target{}, apierrors.NewBadRequest(err.Error())
		}
		return target{
			location:  &url.URL{Scheme: id.scheme, Host: net.JoinHostPort(host, strconv.Itoa(int(port)))},
			transport: access.Transport(),
		}, nil
	}}
}

// running are the agent's paths by which something runs in a container, or connects to
// a pod. They need the right to create, as exec does, and not only that to get.
var running = map[string]bool{
	"exec":        true,
	"attach":      true,
	"portforward": true,
	"run":         true,
	"tunnel":      true,
	"cri":         true,
}

func checkAgentPath(method, asked string) error {
	first, _, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+asked), "/"), "/")
	if method == http.MethodPost || !running[strings.ToLower(first)] {
		return nil
	}
	return apierrors.NewForbidden(
		corev1.Resource("nodes/proxy"), "",
		fmt.Errorf(
			"%s by way of a node needs POST, and with it the right to create nodes/proxy; use pods/%s",
			first, strings.ToLower(first),
		),
	)
}
