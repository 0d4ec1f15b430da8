package metricsapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/apiserver/nodecall"
	"github.com/everynode/everynode/internal/node/usage"
)

// cluster is what the API server has in memory, and what agents say.
type cluster struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod
	says  map[string]*usage.Summary
	asked []string
	// listed counts how often all nodes were read.
	listed int
}

func (c *cluster) Node(_ context.Context, name string) (*corev1.Node, error) {
	for _, n := range c.nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

func (c *cluster) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	for _, p := range c.pods {
		if p.Namespace == namespace && p.Name == name {
			return p, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (c *cluster) Nodes(_ context.Context, selector labels.Selector) (out []*corev1.Node, err error) {
	c.listed++
	for _, n := range c.nodes {
		if selector.Matches(labels.Set(n.Labels)) {
			out = append(out, n)
		}
	}
	return out, nil
}

func (c *cluster) Pods(_ context.Context, namespace string, selector labels.Selector) (out []*corev1.Pod, err error) {
	for _, p := range c.pods {
		if (namespace == "" || p.Namespace == namespace) && selector.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	return out, nil
}

func (c *cluster) summaries(_ context.Context, nodes []*corev1.Node) map[string]*usage.Summary {
	out := map[string]*usage.Summary{}
	for _, n := range nodes {
		c.asked = append(c.asked, n.Name)
		if s := c.says[n.Name]; s != nil {
			out[n.Name] = s
		}
	}
	return out
}

var noon = metav1.NewTime(time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC))

func used(nanoCores, bytes uint64) (*usage.CPU, *usage.Memory) {
	return &usage.CPU{Time: noon, Window: metav1.Duration{Duration: 10 * time.Second}, UsageNanoCores: nanoCores}, &usage.Memory{Time: noon, WorkingSetBytes: bytes}
}

// testCluster has nodes a (which answers), b (which does not) and sim, and a pod of two containers on a.
func testCluster() *cluster {
	c := &cluster{says: map[string]*usage.Summary{}}
	for _, name := range []string{"a", "b", "sim"} {
		c.nodes = append(c.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}})
	}
	pod := func(namespace, name, node string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name), Labels: map[string]string{"app": name}}}
		p.Spec.NodeName = node
		c.pods = append(c.pods, p)
		return p
	}
	pod("ns", "web", "a")
	pod("ns", "new", "a")
	pod("other", "stolen", "b")
	pod("ns", "far", "b")
	s := &usage.Summary{}
	s.Node.CPU, s.Node.Memory = used(250_000_000, 64<<20)
	add := func(uid string, containers ...usage.Container) {
		s.Pods = append(s.Pods, usage.Pod{Ref: usage.Reference{UID: uid}, Containers: containers})
	}
	main, side := usage.Container{Name: "main"}, usage.Container{Name: "side"}
	main.CPU, main.Memory = used(1_000_000, 1<<20)
	side.CPU, side.Memory = used(2_000_000, 2<<20)
	add("ns-web", main, side)
	add("ns-new", usage.Container{Name: "main", Memory: main.Memory}) // started a moment ago
	add("other-stolen", main)                                         // not a's to speak of
	add("ns-gone", main)                                              // not in the API
	c.says["a"] = s
	return c
}

func get(t *testing.T, c *cluster, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	answer((&handler{reader: c, summaries: c.summaries}).serve).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/metrics.k8s.io/v1beta1/"+path, nil))
	return w.Code, w.Body.String()
}

func TestAnswers(t *testing.T) {
	const (
		nodeA = `a map[cpu:250m memory:64Mi] 10s`
		web   = `ns/web main map[cpu:1m memory:1Mi] side map[cpu:2m memory:2Mi]`
	)
	for path, want := range map[string]string{
		"nodes":                        nodeA,
		"nodes/a":                      nodeA,
		"nodes?labelSelector=name%3Db": "",
		"nodes/b":                      "404 nodes.metrics.k8s.io \"b\" not found",
		"nodes/nosuch":                 "404 nodes.metrics.k8s.io \"nosuch\" not found",
		"pods":                         web,
		"namespaces/ns/pods":           web,
		"namespaces/other/pods":        "",
		"namespaces/ns/pods?labelSelector=app=web": web,
		"namespaces/ns/pods?labelSelector=app=far": "",
		"namespaces/ns/pods/web":                   web,
		"namespaces/ns/pods/new":                   "404 pods.metrics.k8s.io \"ns/new\" not found",
		"pods?labelSelector=)":                     "400 unable to parse",
		"pods?watch=true":                          "405 watch is not supported",
		"nosuch":                                   "404 the server could not find the requested resource",
	} {
		code, body := get(t, testCluster(), path)
		if got := summarize(t, code, body); !strings.HasPrefix(got, want) || (want == "" && got != "") {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// summarize writes what a test is about on one line.
func summarize(t *testing.T, code int, body string) string {
	t.Helper()
	type amounts = map[string]string
	type item struct {
		Kind, Message string
		Metadata      metav1.ObjectMeta
		Usage         amounts
		Window        string
		Containers    []struct {
			Name  string
			Usage amounts
		}
	}
	var answer struct {
		item
		Items []item
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if answer.Kind == "Status" {
		return fmt.Sprintf("%d %s", code, answer.Message)
	}
	var lines []string
	if !strings.HasSuffix(answer.Kind, "List") {
		answer.Items = []item{answer.item}
	}
	for _, i := range answer.Items {
		if i.Usage != nil {
			lines = append(lines, fmt.Sprintf("%s %v %s", i.Metadata.Name, i.Usage, i.Window))
			continue
		}
		line := i.Metadata.Namespace + "/" + i.Metadata.Name
		for _, c := range i.Containers {
			line += fmt.Sprintf(" %s %v", c.Name, c.Usage)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// Who asks about one pod or node does not have the server read all of them.
func TestOneIsReadAlone(t *testing.T) {
	for _, path := range []string{"nodes/a", "nodes/nosuch", "namespaces/ns/pods/web", "namespaces/ns/pods/new", "namespaces/ns/pods"} {
		c := testCluster()
		get(t, c, path)
		if c.listed != 0 {
			t.Errorf("%s: all nodes were read", path)
		}
	}
	c := testCluster()
	for i := range oneByOne + 1 {
		c.pods = append(c.pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i)}, Spec: corev1.PodSpec{NodeName: fmt.Sprint("n", i)}})
	}
	get(t, c, "pods")
	if c.listed != 1 {
		t.Errorf("for pods on many nodes the nodes were read %d times, want once", c.listed)
	}
}

func TestOnlyTheNodesOfThePodsAreAsked(t *testing.T) {
	c := testCluster()
	get(t, c, "namespaces/ns/pods/web")
	if len(c.asked) != 1 || c.asked[0] != "a" {
		t.Errorf("asked %v, want a alone", c.asked)
	}
}

// noRefusals refuses nobody.
type noRefusals struct{}

func (noRefusals) Check(*x509.Certificate) error { return nil }
func (noRefusals) OnRevoke(func(string))         {}

func TestCollect(t *testing.T) {
	agent := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != usage.Path {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"node":{"nodeName":"a","cpu":{"usageNanoCores":5}},"pods":[]}`)
	}))
	t.Cleanup(agent.Close)
	address, port, _ := strings.Cut(strings.TrimPrefix(agent.URL, "https://"), ":")
	named := func(name, address, port string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		_, _ = fmt.Sscan(port, &n.Status.DaemonEndpoints.KubeletEndpoint.Port)
		return n
	}
	nodes := []*corev1.Node{named("a", address, port), named("simulated", address, "0"), named("dead", address, "1")}
	c := &collector{agents: nodecall.New(&tls.Config{InsecureSkipVerify: true}, func(_ context.Context, name string) (*corev1.Node, error) {
		return nodes[slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name })], nil
	}, noRefusals{})}
	got := c.summaries(t.Context(), nodes)
	if len(got) != 1 || got["a"] == nil || got["a"].Node.CPU.UsageNanoCores != 5 {
		t.Errorf("got %+v, want what a says", got)
	}
}
