package metricsapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/everynode/everynode/internal/apiserver/nodecall"
	"github.com/everynode/everynode/internal/apiserver/plaingroup"
	"github.com/everynode/everynode/internal/node/usage"
)

// Reader reads nodes and pods as the API server has them in memory.
type Reader interface {
	Nodes(ctx context.Context, selector labels.Selector) ([]*corev1.Node, error)
	Pods(ctx context.Context, namespace string, selector labels.Selector) ([]*corev1.Pod, error)
	// Node and Pod give a NotFound error for what is not there.
	Node(ctx context.Context, name string) (*corev1.Node, error)
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
}

// Install serves the group.
func Install(server *genericapiserver.GenericAPIServer, client kubernetes.Interface, agents *nodecall.Caller) {
	h := &handler{reader: clientReader{client}, summaries: (&collector{agents: agents}).summaries}
	plaingroup.Install(server, plaingroup.Group{
		GroupVersion: metricsv1beta1.SchemeGroupVersion,
		Serve:        answer(h.serve),
		Resources: []metav1.APIResource{
			{Name: "nodes", Kind: "NodeMetrics", Verbs: verbs},
			{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: verbs},
		},
	})
}

var verbs = []string{"get", "list"}

// handler answers requests for metrics.
type handler struct {
	reader    Reader
	summaries func(ctx context.Context, nodes []*corev1.Node) map[string]*usage.Summary
}

// serve finds out what is asked for. The path is one of nodes[/NAME], pods and namespaces/NAMESPACE/pods[/NAME].
func (h *handler) serve(r *http.Request) (any, error) {
	if r.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(metricsv1beta1.Resource("metrics"), strings.ToLower(r.Method))
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("unable to parse the label selector: %v", err))
	}
	if r.URL.Query().Get("watch") == "true" {
		return nil, apierrors.NewMethodNotSupported(metricsv1beta1.Resource("metrics"), "watch")
	}
	_, rest, _ := strings.Cut(r.URL.Path, metricsv1beta1.SchemeGroupVersion.String()+"/")
	return h.answer(r.Context(), strings.Split(strings.Trim(rest, "/"), "/"), selector)
}

func (h *handler) answer(ctx context.Context, parts []string, selector labels.Selector) (any, error) {
	switch {
	case parts[0] == "nodes" && len(parts) == 1:
		return h.nodes(ctx, selector)
	case parts[0] == "nodes" && len(parts) == 2:
		return h.node(ctx, parts[1])
	case parts[0] == "pods" && len(parts) == 1:
		return h.pods(ctx, metav1.NamespaceAll, selector)
	case parts[0] == "namespaces" && len(parts) == 3 && parts[2] == "pods":
		return h.pods(ctx, parts[1], selector)
	case parts[0] == "namespaces" && len(parts) == 4 && parts[2] == "pods":
		return h.pod(ctx, parts[1], parts[3])
	}
	return nil, apierrors.NewGenericServerResponse(
		http.StatusNotFound, "get", metricsv1beta1.Resource(parts[0]), "",
		"the server could not find the requested resource", 0, false,
	)
}

func (h *handler) nodes(ctx context.Context, selector labels.Selector) (*metricsv1beta1.NodeMetricsList, error) {
	list := &metricsv1beta1.NodeMetricsList{TypeMeta: kind("NodeMetricsList"), Items: []metricsv1beta1.NodeMetrics{}}
	nodes, err := h.reader.Nodes(ctx, selector)
	if err != nil {
		return nil, err
	}
	summaries := h.summaries(ctx, nodes)
	for _, n := range nodes {
		if s := summaries[n.Name]; s != nil {
			if m, ok := nodeMetrics(n, s); ok {
				list.Items = append(list.Items, m)
			}
		}
	}
	slices.SortFunc(list.Items, func(a, b metricsv1beta1.NodeMetrics) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (h *handler) node(ctx context.Context, name string) (*metricsv1beta1.NodeMetrics, error) {
	n, err := h.reader.Node(ctx, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		if s := h.summaries(ctx, []*corev1.Node{n})[name]; s != nil {
			if m, ok := nodeMetrics(n, s); ok {
				m.TypeMeta = kind("NodeMetrics")
				return &m, nil
			}
		}
	}
	return nil, apierrors.NewNotFound(metricsv1beta1.Resource("nodes"), name)
}

func (h *handler) pods(ctx context.Context, namespace string,
	selector labels.Selector) (*metricsv1beta1.PodMetricsList, error) {
	pods, err := h.reader.Pods(ctx, namespace, selector)
	if err != nil {
		return nil, err
	}
	list := &metricsv1beta1.PodMetricsList{TypeMeta: kind("PodMetricsList")}
	list.Items, err = h.measure(ctx, pods)
	return list, err
}

func (h *handler) pod(ctx context.Context, namespace, name string) (*metricsv1beta1.PodMetrics, error) {
	p, err := h.reader.Pod(ctx, namespace, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	var found []metricsv1beta1.PodMetrics
	if err == nil {
		if found, err = h.measure(ctx, []*corev1.Pod{p}); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, apierrors.NewNotFound(metricsv1beta1.Resource("pods"), namespace+"/"+name)
	}
	found[0].TypeMeta = kind("PodMetrics")
	return &found[0], nil
}

// measure asks the nodes of the pods, and no others.
func (h *handler) measure(ctx context.Context, pods []*corev1.Pod) ([]metricsv1beta1.PodMetrics, error) {
	out := []metricsv1beta1.PodMetrics{}
	byUID := make(map[string]*corev1.Pod, len(pods))
	wanted := map[string]bool{}
	for _, p := range pods {
		byUID[string(p.UID)] = p
		wanted[p.Spec.NodeName] = true
	}
	nodes, err := h.nodesNamed(ctx, wanted)
	if err != nil {
		return nil, err
	}
	for name, s := range h.summaries(ctx, nodes) {
		for i := range s.Pods {
			p := byUID[s.Pods[i].Ref.UID]
			if p == nil || p.Spec.NodeName != name {
				continue // a node speaks for its own pods only
			}
			if m, ok := podMetrics(p, &s.Pods[i]); ok {
				out = append(out, m)
			}
		}
	}
	slices.SortFunc(out, func(a, b metricsv1beta1.PodMetrics) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return out, nil
}

// oneByOne is how many nodes are read by their names. For more, all are read at once.
const oneByOne = 32

// nodesNamed reads those of the nodes that there are.
func (h *handler) nodesNamed(ctx context.Context, names map[string]bool) (nodes []*corev1.Node, err error) {
	if len(names) > oneByOne {
		nodes, err = h.reader.Nodes(ctx, labels.Everything())
		return slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return !names[n.Name] }), err
	}
	for name := range names {
		if name == "" {
			continue // not bound yet
		}
		n, err := h.reader.Node(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		default:
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: name, APIVersion: metricsv1beta1.SchemeGroupVersion.String()}
}

// answer writes what a function returns, or its error, as JSON.
func answer(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result, err := f(r)
		if err != nil {
			plaingroup.WriteError(w, err)
			return
		}
		plaingroup.Write(w, http.StatusOK, result)
	})
}

// clientReader reads through a client of the API server, from its cache.
type clientReader struct{ client kubernetes.Interface }

// Nodes implements Reader.
func (r clientReader) Nodes(ctx context.Context, selector labels.Selector) ([]*corev1.Node, error) {
	list, err := r.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{
		LabelSelector:   selector.String(),
		ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return pointers(list.Items), nil
}

// Pods implements Reader.
func (r clientReader) Pods(ctx context.Context, namespace string, selector labels.Selector) ([]*corev1.Pod, error) {
	list, err := r.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector:   selector.String(),
		ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pointers(list.Items), nil
}

// Node implements Reader.
func (r clientReader) Node(ctx context.Context, name string) (*corev1.Node, error) {
	if !possible(name) {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	n, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return n, nil
}

// Pod implements Reader.
func (r clientReader) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	if !possible(namespace) || !possible(name) {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	p, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	return p, nil
}

// possible says whether an object can have this name; a client has no words for one
// that cannot.
func possible(name string) bool { return name != "" && len(content.IsPathSegmentName(name)) == 0 }

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}
