package streaming

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // client-go's dialers are of this type
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cristreaming "k8s.io/cri-streaming/pkg/streaming"
	criremote "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/everynode/everynode/internal/pki"
)

// fakeRuntime has one container "id" and one sandbox "box". Its streams go through a real streaming server for runtimes.
type fakeRuntime struct {
	server cristreaming.Server

	mu      sync.Mutex
	running bool
}

func newFakeRuntime(t *testing.T) *fakeRuntime {
	t.Helper()
	r := &fakeRuntime{running: true}
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.server.ServeHTTP(w, req) }))
	t.Cleanup(listener.Close)
	base, err := url.Parse(listener.URL)
	if err != nil {
		t.Fatal(err)
	}
	config := cristreaming.DefaultConfig
	config.BaseURL = base
	r.server, err = cristreaming.NewServer(config, program{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *fakeRuntime) Exec(_ context.Context, id string, command []string, s Streams) (*url.URL, error) {
	if id != "id" {
		return nil, fmt.Errorf("no container %q", id)
	}
	answer, err := r.server.GetExec(&runtimeapi.ExecRequest{ContainerId: id, Cmd: command, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: s.TTY})
	if err != nil {
		return nil, err
	}
	return url.Parse(answer.Url)
}

func (r *fakeRuntime) Attach(_ context.Context, id string, s Streams) (*url.URL, error) {
	answer, err := r.server.GetAttach(&runtimeapi.AttachRequest{ContainerId: id, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: s.TTY})
	if err != nil {
		return nil, err
	}
	return url.Parse(answer.Url)
}

func (r *fakeRuntime) PortForward(_ context.Context, id string, ports []int32) (*url.URL, error) {
	answer, err := r.server.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: id, Port: ports})
	if err != nil {
		return nil, err
	}
	return url.Parse(answer.Url)
}

func (r *fakeRuntime) Running(context.Context, string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running, nil
}

// program is what runs in the container: it repeats its input and says what it was told.
type program struct{}

func (program) Exec(_ context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan criremote.TerminalSize) error {
	fmt.Fprintf(out, "%s %q tty=%v\n", id, cmd, tty)
	if tty {
		size := <-resize
		fmt.Fprintf(out, "%dx%d\n", size.Width, size.Height)
	}
	if in != nil {
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
	if errOut != nil {
		fmt.Fprintln(errOut, "to stderr")
	}
	if cmd[0] == "fail" {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit 42"), Code: 42}
	}
	return nil
}

func (p program) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan criremote.TerminalSize) error {
	return p.Exec(ctx, id, []string{"attached"}, in, out, errOut, tty, resize)
}

func (program) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	buffer := make([]byte, 100)
	n, err := stream.Read(buffer)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stream, "%s:%d got %s", id, port, buffer[:n])
	return err
}

// lookup knows the pod ns/p with the containers main and term.
type lookup struct{ log string }

func (l lookup) Container(_ context.Context, namespace, pod, container string, previous bool) (Container, error) {
	switch {
	case namespace != "ns" || pod != "p":
		return Container{}, apierrors.NewNotFound(corev1.Resource("pods"), pod)
	case previous:
		return Container{}, apierrors.NewBadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", container, pod))
	}
	return Container{ID: "id", LogPath: l.log, LogRoot: filepath.Dir(l.log), TTY: container == "term"}, nil
}

func (l lookup) Sandbox(context.Context, string, string) (string, error) { return "box", nil }

// node is a running server and the cluster that it belongs to.
type node struct {
	url     string
	runtime *fakeRuntime
	log     string
	bundle  *pki.Bundle
	dir     string
	// closed keeps all callers away.
	closed atomic.Bool
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{runtime: newFakeRuntime(t), dir: t.TempDir()}
	n.log = filepath.Join(n.dir, "0.log")
	var err error
	n.bundle, err = pki.LoadOrCreate(filepath.Join(n.dir, "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := n.bundle.ServingFiles() // valid for loopback
	server, err := Listen(Config{
		Address: "127.0.0.1:0",
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		},
		ClientCAs: n.bundle.CAPool, Configz: map[string]int{"a": 1},
		Pages: map[string]http.Handler{"/page": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, "a page") })},
		Protect: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n.closed.Load() {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				next.ServeHTTP(w, r)
			})
		},
		Lookup: lookup{log: n.log}, Runtime: n.runtime,
		Pods: func() []*corev1.Pod { return []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "p"}}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.url = "https://" + server.Address().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return n
}

// client is an HTTP client with the given certificate; nil means the API server's.
func (n *node) client(t *testing.T, pair *tls.Certificate) *http.Client {
	t.Helper()
	config := n.bundle.NodeClientTLS()
	// This node shows a certificate that is valid for loopback.
	config.InsecureSkipVerify, config.VerifyConnection, config.RootCAs = false, nil, n.bundle.CAPool()
	if pair != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (n *node) get(t *testing.T, path string) (int, string) {
	t.Helper()
	response, err := n.client(t, nil).Get(n.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// restConfig is for client-go's streams.
func (n *node) restConfig(t *testing.T) *rest.Config {
	t.Helper()
	certPEM, keyPEM, err := n.bundle.Signer().NewClient(pki.KubeletClientUser, []string{pki.MastersGroup}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: n.url, TLSClientConfig: rest.TLSClientConfig{CAData: n.bundle.CAPEM(), CertData: certPEM, KeyData: keyPEM}}
}

// What is not let through is not answered, whatever is asked for.
func TestProtect(t *testing.T) {
	n := newNode(t)
	if code, body := n.get(t, "/healthz"); code != http.StatusOK || body != "ok" {
		t.Errorf("who may call gets %d %s", code, body)
	}
	n.closed.Store(true)
	for _, path := range []string{"/healthz", "/pods", "/containerLogs/ns/p/main", "/nothing", "/exec/ns/p/main?command=a&output=1", "/page", "/configz"} {
		if code, _ := n.get(t, path); code != http.StatusTeapot {
			t.Errorf("%s is answered with %d, want what keeps callers away", path, code)
		}
	}
}

// Without a certificate there is a connection: a token may come.
func TestNoCertificate(t *testing.T) {
	n := newNode(t)
	response, err := n.client(t, &tls.Certificate{}).Get(n.url + "/page")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "a page" {
		t.Errorf("got %s, %v", body, err)
	}
}

func TestConfigz(t *testing.T) {
	if code, body := newNode(t).get(t, "/configz"); code != http.StatusOK || body != `{"a":1}` {
		t.Errorf("got %d %s", code, body)
	}
}

func TestHealth(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, ill := make(chan error, 1), atomic.Bool{}
	go func() {
		done <- ServeHealth(ctx, address, func() error {
			if ill.Load() {
				return errors.New("it hangs")
			}
			return nil
		})
	}()
	ask := func() (string, error) {
		response, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return fmt.Sprint(response.StatusCode, " ", strings.TrimSpace(string(body))), err
	}
	var got string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if got, err = ask(); err == nil {
			break
		}
	}
	if got != "200 ok" {
		t.Errorf("got %s, %v", got, err)
	}
	ill.Store(true)
	if got, err := ask(); got != "500 healthz check failed: it hangs" {
		t.Errorf("got %s, %v", got, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestPods(t *testing.T) {
	_, body := newNode(t).get(t, "/pods")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil || list.Kind != "PodList" || len(list.Items) != 1 {
		t.Errorf("got %s, %v", body, err)
	}
}

func TestLogs(t *testing.T) {
	n := newNode(t)
	log := "2026-08-01T12:00:00Z stdout F one\n2026-08-01T12:00:01Z stderr F two\n2026-08-01T12:00:02Z stdout F three\n"
	if err := os.WriteFile(n.log, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path string
		code int
		want string
	}{
		{"/containerLogs/ns/p/main", 200, "one\ntwo\nthree\n"},
		{"/containerLogs/ns/p/main?tailLines=1&timestamps=true", 200, "2026-08-01T12:00:02.000000000Z three\n"},
		{"/containerLogs/ns/p/main?stream=Stderr", 200, "two\n"},
		{"/containerLogs/ns/p/main?limitBytes=5", 200, "one\nt"},
		{"/containerLogs/ns/p/main?sinceTime=2026-08-01T12:00:01Z", 200, "two\nthree\n"},
		{"/containerLogs/ns/p/main?tailLines=-1", 400, "tailLines: must be greater than or equal to 0\n"},
		{"/containerLogs/ns/p/main?limitBytes=0", 400, "limitBytes: must be greater than 0\n"},
		{"/containerLogs/ns/p/main?sinceSeconds=0", 400, "sinceSeconds: must be greater than 0\n"},
		{"/containerLogs/ns/p/main?sinceSeconds=1&sinceTime=2026-08-01T12:00:01Z", 400, "sinceTime: at most one of sinceTime or sinceSeconds may be specified\n"},
		{"/containerLogs/ns/p/main?follow=perhaps", 400, "follow: must be true or false\n"},
		{"/containerLogs/ns/p/main?previous=true", 400, "previous terminated container \"main\" in pod \"p\" not found\n"},
		{"/containerLogs/ns/gone/main", 404, "pods \"gone\" not found\n"},
		{"/containerLogs/ns/p", 404, "404 page not found\n"},
	}
	for _, test := range tests {
		if code, body := n.get(t, test.path); code != test.code || body != test.want {
			t.Errorf("%s gives %d %q, want %d %q", test.path, code, body, test.code, test.want)
		}
	}

	response, err := n.client(t, nil).Get(n.url + "/containerLogs/ns/p/main?follow=true&tailLines=1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	buffer := make([]byte, 100)
	if length, err := response.Body.Read(buffer); err != nil || string(buffer[:length]) != "three\n" {
		t.Errorf("follow begins with %q, %v", buffer[:length], err)
	}
	file, err := os.OpenFile(n.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("2026-08-01T12:00:03Z stdout F four\n"); err != nil {
		t.Fatal(err)
	}
	if length, err := response.Body.Read(buffer); err != nil || string(buffer[:length]) != "four\n" {
		t.Errorf("follow goes on with %q, %v", buffer[:length], err)
	}
	n.runtime.mu.Lock()
	n.runtime.running = false
	n.runtime.mu.Unlock()
	if rest, err := io.ReadAll(response.Body); err != nil || len(rest) != 0 {
		t.Errorf("follow ends with %q, %v", rest, err)
	}
}

// sizes is a terminal of one size.
type sizes struct{ sent bool }

func (s *sizes) Next() *remotecommand.TerminalSize {
	if s.sent {
		return nil
	}
	s.sent = true
	return &remotecommand.TerminalSize{Width: 80, Height: 24}
}

// TestCommands uses both of kubectl's ways: WebSocket (since 1.31) and SPDY (before).
func TestCommands(t *testing.T) {
	n := newNode(t)
	executors := map[string]func(*rest.Config, *url.URL) (remotecommand.Executor, error){
		"SPDY": func(c *rest.Config, u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(c, "POST", u)
		},
		"WebSocket": func(c *rest.Config, u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(c, "GET", u.String())
		},
	}
	tests := []struct {
		name, path     string
		stdin          string
		stderr, tty    bool
		want, wantErr  string
		wantOnlyStderr string
	}{
		{name: "output", path: "/exec/ns/p/main?command=echo&command=a+b&output=1", want: "id [\"echo\" \"a b\"] tty=false\n"},
		{name: "input and errors", path: "/exec/ns/p/main?command=cat&input=1&output=1&error=1", stdin: strings.Repeat("in\n", 50000), stderr: true,
			want: "id [\"cat\"] tty=false\n" + strings.Repeat("in\n", 50000), wantOnlyStderr: "to stderr\n"},
		{name: "exit code", path: "/exec/ns/p/main?command=fail&output=1", want: "id [\"fail\"] tty=false\n", wantErr: "exit code 42"},
		{name: "terminal", path: "/exec/ns/p/main?command=sh&input=1&output=1&tty=1", stdin: "x", tty: true, want: "id [\"sh\"] tty=true\n80x24\nx"},
		{name: "attach", path: "/attach/ns/p/main?input=1&output=1&error=1&tty=1", stdin: "y", stderr: false, want: "id [\"attached\"] tty=false\ny"},
		{name: "attach to a terminal", path: "/attach/ns/p/term?input=1&output=1&tty=1", stdin: "y", tty: true, want: "id [\"attached\"] tty=true\n80x24\ny"},
	}
	for way, newExecutor := range executors {
		for _, test := range tests {
			t.Run(way+" "+test.name, func(t *testing.T) {
				target, err := url.Parse(n.url + test.path)
				if err != nil {
					t.Fatal(err)
				}
				executor, err := newExecutor(n.restConfig(t), target)
				if err != nil {
					t.Fatal(err)
				}
				var stdout, stderr bytes.Buffer
				options := remotecommand.StreamOptions{Stdout: &stdout, Tty: test.tty}
				if test.stdin != "" {
					options.Stdin = strings.NewReader(test.stdin)
				}
				if test.stderr {
					options.Stderr = &stderr
				}
				if test.tty {
					options.TerminalSizeQueue = &sizes{}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				err = executor.StreamWithContext(ctx, options)
				if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
					t.Errorf("error %v, want %q", err, test.wantErr)
				}
				if got := stdout.String(); got != test.want {
					t.Errorf("output of %d bytes %.80q, want %d bytes %.80q", len(got), got, len(test.want), test.want)
				}
				if got := stderr.String(); got != test.wantOnlyStderr {
					t.Errorf("stderr %q, want %q", got, test.wantOnlyStderr)
				}
			})
		}
	}
	for path, want := range map[string]int{
		"/exec/ns/p/main?command=x":             http.StatusBadRequest, // no stream
		"/exec/ns/p/main?output=1":              http.StatusBadRequest, // no command
		"/exec/ns/gone/main?command=x&output=1": http.StatusNotFound,
		"/exec/ns/p/main?command=x&output=1":    http.StatusBadRequest, // no upgrade
		"/portForward/ns/p?port=0":              http.StatusBadRequest,
	} {
		if code, body := n.get(t, path); code != want {
			t.Errorf("%s gives %d %s, want %d", path, code, body, want)
		}
	}
}

// TestNoCommandsInEndedContainers says so before the runtime is asked.
func TestNoCommandsInEndedContainers(t *testing.T) {
	n := newNode(t)
	n.runtime.mu.Lock()
	n.runtime.running = false
	n.runtime.mu.Unlock()
	for _, path := range []string{"/exec/ns/p/main?command=echo&output=1", "/attach/ns/p/main?output=1"} {
		status, body := n.get(t, path)
		if want := `container not found ("main")`; status != http.StatusInternalServerError || !strings.Contains(body, want) {
			t.Errorf("%s: got status %d, %q; want %d, %q", path, status, body, http.StatusInternalServerError, want)
		}
	}
}

func TestPortForward(t *testing.T) {
	n := newNode(t)
	config := n.restConfig(t)
	target, err := url.Parse(n.url + "/portForward/ns/p")
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(target, config)
	if err != nil {
		t.Fatal(err)
	}
	for name, dialer := range map[string]httpstream.Dialer{
		"SPDY":      spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", target),
		"WebSocket": tunnel,
	} {
		t.Run(name, func(t *testing.T) {
			stop, ready := make(chan struct{}), make(chan struct{})
			forwarder, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- forwarder.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-done:
				t.Fatal(err)
			}
			ports, err := forwarder.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(conn); err != nil || string(answer) != "box:8080 got hello" {
				t.Errorf("answer %q, %v", answer, err)
			}
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestListenChecksItsConfig(t *testing.T) {
	if _, err := Listen(Config{Address: "127.0.0.1:0", ClientCAs: x509.NewCertPool}); err == nil {
		t.Error("a server without certificate, lookup and runtime is accepted")
	}
}
