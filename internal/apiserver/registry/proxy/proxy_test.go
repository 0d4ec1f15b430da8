package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/nodecall"
	"github.com/everynode/everynode/internal/apiserver/podaccess"
	"github.com/everynode/everynode/internal/node/tunnel"
)

// store finds objects by name.
type store map[string]runtime.Object

func (s store) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if s[name] == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("objects"), name)
	}
	return s[name], nil
}

// daemon is what runs in the pod: a page, an echo of requests, and one of upgraded connections.
func daemon(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") == "echo":
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, strings.ToUpper(line))
	case r.URL.Path == "/page":
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="/other">x</a>`)
	case r.URL.Path == "/away":
		http.Redirect(w, r, "/there", http.StatusFound)
	default:
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s?%s %s", r.Method, r.URL.Path, r.URL.RawQuery, body)
	}
}

// world is a node with an agent, which has a tunnel to the pod 10.1.2.3 at any port, and says which one was asked for.
type world struct {
	agents *nodecall.Caller
	access *podaccess.Access
	node   *corev1.Node
	pods   store
	asked  string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	plain := httptest.NewServer(http.HandlerFunc(daemon))
	secured := httptest.NewTLSServer(http.HandlerFunc(daemon))
	mux := http.NewServeMux()
	mux.HandleFunc(tunnel.Path, func(rw http.ResponseWriter, r *http.Request) {
		w.asked = r.PathValue("address") + ":" + r.PathValue("port")
		to := plain.Listener.Addr().String()
		if r.PathValue("port") == "443" {
			to = secured.Listener.Addr().String()
		}
		back, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return
		}
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+tunnel.Protocol+"\r\n\r\n")
		go func() { defer back.Close(); _, _ = io.Copy(back, conn) }()
		go func() { defer conn.Close(); _, _ = io.Copy(conn, back) }()
	})
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) { fmt.Fprintf(rw, "agent: %s %s", r.Method, r.URL.Path) })
	agent := httptest.NewTLSServer(mux)
	t.Cleanup(func() { agent.CloseClientConnections(); agent.Close(); plain.Close(); secured.Close() })
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	w.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	w.node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(agent.Listener.Addr().(*net.TCPAddr).Port)
	nodes := func(context.Context, string) (*corev1.Node, error) { return w.node, nil }
	w.agents = nodecall.New(&tls.Config{InsecureSkipVerify: true}, nodes, noRefusals{})
	w.access = podaccess.New(w.agents, nodes)
	pod := func(name, ip string, ports ...int32) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{}, {}}}}
		p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
		for _, port := range ports {
			p.Spec.Containers[1].Ports = append(p.Spec.Containers[1].Ports, corev1.ContainerPort{ContainerPort: port})
		}
		return p
	}
	w.pods = store{"p": pod("p", "10.1.2.3", 8080, 9090), "portless": pod("portless", "10.1.2.3"), "starting": pod("starting", ""),
		"local": pod("local", "127.0.0.1", 80), "metadata": pod("metadata", "169.254.169.254", 80)}
	return w
}

// failure keeps the error that a handler reports.
type failure struct{ err error }

func (f *failure) Object(int, runtime.Object) {}
func (f *failure) Error(err error)            { f.err = err }

// serve serves one subresource below /api/.../NAME/proxy/ as the API server does.
func serve(t *testing.T, r *REST) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, path, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/api/"), "/proxy")
		options, _, _ := r.NewConnectOptions()
		switch o := options.(type) {
		case *corev1.PodProxyOptions:
			o.Path = path
		case *corev1.ServiceProxyOptions:
			o.Path = path
		case *corev1.NodeProxyOptions:
			o.Path = path
		}
		f := &failure{}
		handler, err := r.Connect(request.WithNamespace(req.Context(), "ns"), name, options, f)
		if err == nil {
			handler.ServeHTTP(w, req)
			err = f.err
		}
		if err != nil {
			code := http.StatusInternalServerError
			if status, ok := err.(apierrors.APIStatus); ok {
				code = int(status.Status().Code)
			}
			http.Error(w, err.Error(), code)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func ask(t *testing.T, method, address, body string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(text)), response.Header
}

func TestPods(t *testing.T) {
	w := newWorld(t)
	server := serve(t, NewPods(w.pods, w.access))
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		want, asked        string
	}{
		"the first port that it names":   {"GET", "p/proxy/a/b?c=d", "", 200, "GET /a/b?c=d", "10.1.2.3:8080"},
		"a port":                         {"POST", "p:9090/proxy/a/", "body", 200, "POST /a/? body", "10.1.2.3:9090"},
		"TLS":                            {"PUT", "https:p:443/proxy/a", "body", 200, "PUT /a? body", "10.1.2.3:443"},
		"one that names no port":         {"GET", "portless/proxy/", "", 200, "GET /?", "10.1.2.3:80"},
		"links on a page":                {"GET", "p/proxy/page", "", 200, `<a href="/api/p/proxy/other">x</a>`, ""},
		"a name that is none":            {"GET", "ftp:p:80/proxy/", "", 400, `invalid pod request "ftp:p:80"`, ""},
		"a port that is none":            {"GET", "p:http/proxy/", "", 400, `invalid port "http"`, ""},
		"no such pod":                    {"GET", "q/proxy/", "", 404, `objects "q" not found`, ""},
		"a pod without an address":       {"GET", "starting/proxy/", "", 400, "address not allowed", ""},
		"the server's own machine":       {"GET", "local/proxy/", "", 400, "address not allowed", ""},
		"the metadata of a cloud":        {"GET", "metadata/proxy/", "", 400, "address not allowed", ""},
		"deletions are passed on as all": {"DELETE", "p/proxy/a", "", 200, "DELETE /a?", ""},
	} {
		w.asked = ""
		code, text, _ := ask(t, c.method, server.URL+"/api/"+c.path, c.body)
		if code != c.code || text != c.want || c.asked != "" && w.asked != "" && w.asked != c.asked {
			t.Errorf("%s: %d %s from %q, want %d %s from %s", name, code, text, w.asked, c.code, c.want, c.asked)
		}
	}
	for path, want := range map[string]string{"p/proxy": "/api/p/proxy/", "p/proxy/away": "/api/p/proxy/there"} {
		if code, _, header := ask(t, "GET", server.URL+"/api/"+path, ""); code/100 != 3 || header.Get("Location") != want {
			t.Errorf("%s: %d to %q, want a redirect to %s", path, code, header.Get("Location"), want)
		}
	}
}

func TestUpgrades(t *testing.T) {
	server := serve(t, NewPods(newWorld(t).pods, newWorld(t).access))
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /api/p/proxy/talk HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v", response, err)
	}
	fmt.Fprintf(conn, "hello\n")
	if got, err := reader.ReadString('\n'); got != "HELLO\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestServices(t *testing.T) {
	w := newWorld(t)
	web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "tls", Port: 443}}}}
	endpoint := func(ip, node, pod, namespace string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: &node, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod}}
	}
	good := endpoint("10.1.2.3", "n1", "p", "ns")
	for name, c := range map[string]struct {
		id       string
		endpoint discoveryv1.Endpoint
		code     int
		want     string
	}{
		"by the name of the port":        {"web:http", good, 200, "GET /a?"},
		"by its number":                  {"web:80", good, 200, "GET /a?"},
		"TLS":                            {"https:web:443", good, 200, "GET /a?"},
		"no such number":                 {"web:81", good, 503, `no service port 81 found for service "web"`},
		"no such name":                   {"web:x", good, 503, `no endpoints available for service "web"`},
		"no such service":                {"none:80", good, 404, `objects "none" not found`},
		"an address that is not the pod": {"web:80", endpoint("10.9.9.9", "n1", "p", "ns"), 503, `no endpoints available for service "web"`},
		"a node that is not the pod's":   {"web:80", endpoint("10.1.2.3", "n2", "p", "ns"), 503, `no endpoints available for service "web"`},
		"a pod of another namespace":     {"web:80", endpoint("10.1.2.3", "n1", "p", "other"), 503, `no endpoints available for service "web"`},
		"no pod":                         {"web:80", discoveryv1.Endpoint{Addresses: []string{"10.1.2.3"}}, 503, `no endpoints available for service "web"`},
	} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			Ports:      []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}, {Name: ptr.To("tls"), Port: ptr.To(int32(443))}},
			Endpoints:  []discoveryv1.Endpoint{c.endpoint},
		}
		server := serve(t, NewServices(store{"web": web}, w.pods, podaccess.NewServices(fake.NewClientset(slice)), w.access))
		if code, text, _ := ask(t, "GET", server.URL+"/api/"+c.id+"/proxy/a", ""); code != c.code || text != c.want {
			t.Errorf("%s: %d %s, want %d %s", name, code, text, c.code, c.want)
		}
	}
}

func TestNodes(t *testing.T) {
	w := newWorld(t)
	server := serve(t, NewNodes(store{"n1": w.node}, w.agents, w.access))
	agentPort := strconv.Itoa(int(w.node.Status.DaemonEndpoints.KubeletEndpoint.Port))
	for name, c := range map[string]struct {
		method, path string
		code         int
		want         string
	}{
		"the agent":                {"GET", "n1/proxy/healthz", 200, "agent: GET /healthz"},
		"the agent by its port":    {"GET", "n1:" + agentPort + "/proxy/pods", 200, "agent: GET /pods"},
		"another port of the node": {"GET", "n1:22/proxy/", 400, "address not allowed"}, // It is this machine here.
		"exec by GET":              {"GET", "n1/proxy/exec/ns/p/c", 403, ""},
		"exec by GET, in disguise": {"GET", "n1/proxy//x/../Exec/ns/p/c", 403, ""},
		"a tunnel by GET":          {"GET", "n1/proxy/tunnel/10.1.2.3/80", 403, ""},
		"exec by POST":             {"POST", "n1/proxy/exec/ns/p/c", 200, "agent: POST /exec/ns/p/c"},
	} {
		code, text, _ := ask(t, c.method, server.URL+"/api/"+c.path, "")
		if code != c.code || c.want != "" && text != c.want {
			t.Errorf("%s: %d %s, want %d %s", name, code, text, c.code, c.want)
		}
	}
}

// noRefusals takes every certificate that is in order.
type noRefusals struct{}

func (noRefusals) Check(*x509.Certificate) error { return nil }
func (noRefusals) OnRevoke(func(string))         {}
