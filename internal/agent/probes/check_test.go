package probes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// handler answers as the path says.
func handler(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; path {
	case "/slow":
		<-r.Context().Done()
	case "/elsewhere":
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
	case "/here":
		http.Redirect(w, r, "/200", http.StatusFound)
	case "/loop":
		http.Redirect(w, r, "/loop", http.StatusFound)
	case "/echo":
		fmt.Fprintf(w, "host=%s agent=%s accept=%q custom=%q query=%s", r.Host, r.UserAgent(), r.Header["Accept"], r.Header["X-A"], r.URL.RawQuery)
	case "/big":
		fmt.Fprint(w, strings.Repeat("x", 10*maxOutput))
	default:
		code, err := strconv.Atoi(strings.TrimPrefix(path, "/"))
		if err != nil {
			code = http.StatusTeapot
		}
		w.WriteHeader(code)
	}
}

func portOf(t *testing.T, server *httptest.Server) int {
	t.Helper()
	parsed, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(parsed.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// check does one check of a container at 127.0.0.1 that names its port 8080 "web".
func check(t *testing.T, probe corev1.ProbeHandler) (outcome, error) {
	t.Helper()
	c := newChecker(Config{Version: "v1.37.2"})
	at := &target{podIP: "127.0.0.1", container: &corev1.Container{Name: "main", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}}, pod: &corev1.Pod{}}
	return c.do(t.Context(), at, &corev1.Probe{ProbeHandler: probe, TimeoutSeconds: 1})
}

func TestHTTP(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(handler))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(handler))
	defer secure.Close()
	tests := []struct {
		path    string
		scheme  corev1.URIScheme
		headers []corev1.HTTPHeader
		want    outcome
		part    bool // output need only contain want's
	}{
		{path: "/200", want: outcome{success: true}},
		{path: "200", want: outcome{success: true}},
		{path: "/200", scheme: corev1.URISchemeHTTPS, want: outcome{success: true}},
		{path: "/399", want: outcome{success: true, warning: true, output: "Probe terminated redirects, Response body: "}},
		{path: "/400", want: outcome{output: "HTTP probe failed with statuscode: 400"}},
		{path: "/500", scheme: corev1.URISchemeHTTPS, want: outcome{output: "HTTP probe failed with statuscode: 500"}},
		{path: "/here", want: outcome{success: true}},
		{path: "/elsewhere", want: outcome{success: true, warning: true, output: "Probe terminated redirects, Response body: "}, part: true},
		{path: "/loop", want: outcome{output: "stopped after 10 redirects"}, part: true},
		{path: "/slow", want: outcome{output: "Client.Timeout exceeded while awaiting headers"}, part: true},
		{path: "/big", want: outcome{success: true, output: strings.Repeat("x", maxOutput)}},
		{path: "/echo?a=b", headers: []corev1.HTTPHeader{{Name: "host", Value: "name"}, {Name: "X-A", Value: "1"}, {Name: "X-A", Value: "2"}},
			want: outcome{success: true, output: `host=name agent=kube-probe/1.37 accept=["*/*"] custom=["1" "2"] query=a=b`}},
		{path: "/echo", headers: []corev1.HTTPHeader{{Name: "Host", Value: "h"}, {Name: "User-Agent"}, {Name: "Accept"}},
			want: outcome{success: true, output: `host=h agent= accept=[] custom=[] query=`}},
	}
	for _, test := range tests {
		t.Run(test.path+string(test.scheme), func(t *testing.T) {
			server := plain
			if test.scheme == corev1.URISchemeHTTPS {
				server = secure
			}
			got, err := check(t, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: test.path, Port: intstr.FromInt32(int32(portOf(t, server))), Scheme: test.scheme, HTTPHeaders: test.headers,
			}})
			if err != nil {
				t.Fatal(err)
			}
			if test.part && strings.Contains(got.output, test.want.output) {
				got.output = test.want.output
			}
			if got != test.want {
				t.Errorf("outcome %+v, want %+v", got, test.want)
			}
		})
	}
	plain.Close()
	port := portOf(t, plain)
	got, err := check(t, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/x", Port: intstr.FromInt32(int32(port))}})
	want := fmt.Sprintf(`Get "http://127.0.0.1:%d/x": dial tcp 127.0.0.1:%d: connect: connection refused`, port, port)
	if err != nil || got.success || got.output != want {
		t.Errorf("a closed port gives %+v, %v; want %s", got, err, want)
	}
}

func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	action := &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}
	if got, err := check(t, corev1.ProbeHandler{TCPSocket: action}); err != nil || !got.success {
		t.Errorf("an open port gives %+v, %v", got, err)
	}
	listener.Close()
	got, err := check(t, corev1.ProbeHandler{TCPSocket: action})
	want := fmt.Sprintf("dial tcp 127.0.0.1:%d: connect: connection refused", port)
	if err != nil || got.success || got.output != want {
		t.Errorf("a closed port gives %+v, %v; want %s", got, err, want)
	}
	for name, message := range map[string]string{"gone": "couldn't find port: gone for container: main", "70000": "invalid port number: 70000"} {
		if _, err := check(t, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(name)}}); err == nil || err.Error() != message {
			t.Errorf("port %s gives %v, want %s", name, err, message)
		}
	}
	if number, err := portNumber(intstr.FromString("web"), &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}}); number != 8080 {
		t.Errorf("the named port is %d, %v", number, err)
	}
}

func TestGRPC(t *testing.T) {
	start := func(services ...string) int {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		if len(services) > 0 {
			states := health.NewServer()
			for _, service := range services {
				states.SetServingStatus(service, healthpb.HealthCheckResponse_SERVING)
			}
			states.SetServingStatus("sick", healthpb.HealthCheckResponse_NOT_SERVING)
			healthpb.RegisterHealthServer(server, states)
		}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		return listener.Addr().(*net.TCPAddr).Port
	}
	healthy, mute := start("fine"), start()
	tests := []struct {
		port    int
		service string
		want    outcome
	}{
		{healthy, "", outcome{success: true, output: "service healthy"}},
		{healthy, "fine", outcome{success: true, output: "service healthy"}},
		{healthy, "sick", outcome{output: `service unhealthy (responded with "NOT_SERVING")`}},
		{healthy, "unknown", outcome{output: "error: health rpc probe failed"}},
		{mute, "", outcome{output: "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"}},
		{1, "", outcome{output: `error: failed to connect service at "127.0.0.1:1"`}},
	}
	for _, test := range tests {
		got, err := check(t, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(test.port), Service: &test.service}})
		if err != nil || got.success != test.want.success || !strings.HasPrefix(got.output, test.want.output) {
			t.Errorf("service %q on port %d gives %+v, %v; want %+v", test.service, test.port, got, err, test.want)
		}
	}
}

func TestExec(t *testing.T) {
	var got []string
	c := newChecker(Config{Exec: func(_ context.Context, _ string, cmd []string, timeout time.Duration) ([]byte, []byte, int32, error) {
		got = append(cmd, timeout.String())
		return nil, nil, 0, nil
	}})
	at := &target{container: &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "a"}}}, pod: &corev1.Pod{}}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "$(A)", "$(B)"}}}, TimeoutSeconds: 9}
	if result, err := c.do(t.Context(), at, probe); err != nil || !result.success {
		t.Errorf("exit code 0 gives %+v, %v", result, err)
	}
	if line := strings.Join(got, " "); line != "test a $(B) 9s" {
		t.Errorf("ran %q", line)
	}
	if _, err := c.do(t.Context(), at, &corev1.Probe{}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a probe without an action gives %v", err)
	}
}
