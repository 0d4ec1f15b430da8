package streaming

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/node/tunnel"
	"github.com/everynode/everynode/internal/node/usage"
)

// Container is one life of a container.
type Container struct {
	// ID is the runtime's, LogPath the file that it writes the output to. Up to LogRoot the path is trusted; below, others
	// may have put links in it.
	ID, LogPath, LogRoot string
	// TTY is whether the container was made with a terminal.
	TTY bool
}

// Lookup finds what requests name. Its errors go to the caller: those of apierrors with their code and message (a pod
// that isn't here is NotFound; a container that has no such life is BadRequest, `container "c" in pod "p" is waiting to
// start: ContainerCreating` or `previous terminated container "c" in pod "p" not found`), all others as internal
// errors.
type Lookup interface {
	// Container finds a container's newest life, or with previous the one before that.
	Container(ctx context.Context, namespace, pod, container string, previous bool) (Container, error)
	// Sandbox finds the ID of a pod's running sandbox.
	Sandbox(ctx context.Context, namespace, pod string) (string, error)
}

// Streams says which streams of a command are wanted.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// Runtime is the part of a container runtime that streams. The URLs are of its own streaming server, good for one
// request.
type Runtime interface {
	Exec(ctx context.Context, containerID string, command []string, streams Streams) (*url.URL, error)
	Attach(ctx context.Context, containerID string, streams Streams) (*url.URL, error)
	PortForward(ctx context.Context, sandboxID string, ports []int32) (*url.URL, error)
	// Running reports whether a container runs; one that is unknown doesn't.
	Running(ctx context.Context, containerID string) (bool, error)
}

// Config says where to serve and what. All fields up to Runtime must be set.
type Config struct {
	// Address is HOST:PORT; without HOST it is served at every address of the machine.
	Address string
	// Certificate gives the serving certificate for each connection, so that a renewed one is used at once.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs are the authorities of callers' certificates: callers are told whose certificates are of use. Each
	// connection gets those of its time.
	ClientCAs func() *x509.CertPool
	// Protect lets through who may make a request, and answers all others.
	Protect func(http.Handler) http.Handler
	Lookup  Lookup
	Runtime Runtime
	// Pods are the node's pods, for /pods and /tunnel; without it there are no such paths.
	Pods func() []*corev1.Pod
	// Summary says what the node uses, for /stats/summary, if brief processor time and memory only; without it there is no
	// such path.
	Summary func(ctx context.Context, brief bool) (*usage.Summary, error)
	// Pages are further ones by path.
	Pages map[string]http.Handler
	// Images pulls images and keeps them; without it there are no such paths.
	Images Images
	// Configz is how the node is configured, for /configz; without it there is no such path.
	Configz any
}

// Server serves one node.
type Server struct {
	cfg      Config
	listener net.Listener
	http     *http.Server
}

// Listen opens the address; nothing is answered before Run.
func Listen(cfg Config) (*Server, error) {
	if cfg.Certificate == nil || cfg.ClientCAs == nil || cfg.Protect == nil || cfg.Lookup == nil || cfg.Runtime == nil {
		return nil, errors.New("node server: Certificate, ClientCAs, Protect, Lookup and Runtime must be set")
	}
	listener, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("node server: %w", err)
	}
	s := &Server{cfg: cfg, listener: listener}
	s.http = &http.Server{
		Handler: s.handler(),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: cfg.Certificate,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return &tls.Config{
					MinVersion:     tls.VersionTLS12,
					GetCertificate: cfg.Certificate,
					ClientCAs:      cfg.ClientCAs(),
					// Whoever has no certificate, or one of another authority, may still have a token. Protect looks at both.
					ClientAuth: tls.RequestClientCert,
					NextProtos: []string{"h2", "http/1.1"},
				}, nil
			},
		},
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       90 * time.Second,
	}
	return s, nil
}

// Address is where the server listens.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends; streams that are open then end, too.
func (s *Server) Run(ctx context.Context) error {
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	s.http.ErrorLog = klog.NewStandardLogger("INFO")
	stop := context.AfterFunc(ctx, func() {
		if err := s.http.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "Node server did not close")
		}
	})
	defer stop()
	err := s.http.ServeTLS(s.listener, "", "")
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("node server: %w", err)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz/{$}", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok") })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)
	for _, method := range []string{"GET ", "POST "} {
		mux.HandleFunc(method+"/exec/{namespace}/{pod}/{container}", s.exec)
		mux.HandleFunc(method+"/attach/{namespace}/{pod}/{container}", s.attach)
		mux.HandleFunc(method+"/portForward/{namespace}/{pod}", s.portForward)
	}
	if s.cfg.Pods != nil {
		mux.HandleFunc("GET /pods", s.pods)
		// By POST: it needs the right to create, as port-forward through the API does.
		mux.HandleFunc("POST "+tunnel.Path, s.tunnel)
	}
	if s.cfg.Summary != nil {
		mux.HandleFunc("GET "+usage.Path, s.summary)
	}
	if s.cfg.Images != nil {
		s.serveImages(mux)
	}
	for path, page := range s.cfg.Pages {
		mux.Handle("GET "+path, page)
	}
	if s.cfg.Configz != nil {
		mux.HandleFunc("GET /configz", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, r, s.cfg.Configz) })
	}
	return s.cfg.Protect(mux)
}

func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for _, pod := range s.cfg.Pods() {
		list.Items = append(list.Items, *pod)
	}
	writeJSON(w, r, list)
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	brief, err := strconv.ParseBool(cmp.Or(r.URL.Query().Get(usage.Brief), "false"))
	if err != nil {
		writeError(w, r, apierrors.NewBadRequest(usage.Brief+": must be true or false"))
		return
	}
	summary, err := s.cfg.Summary(r.Context(), brief)
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeJSON(w, r, summary)
}

func writeJSON(w http.ResponseWriter, r *http.Request, obj any) {
	data, err := json.Marshal(obj)
	if err != nil {
		writeError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	writeText(w, string(data))
}

// writeText answers; a caller that is gone is no concern of ours.
func writeText(w http.ResponseWriter, text string) { _, _ = w.Write([]byte(text)) }

// writeError answers with an error of the API as it is, and with others as internal errors.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code != 0 {
		http.Error(w, status.Status().Message, int(status.Status().Code))
		return
	}
	klog.FromContext(r.Context()).Error(err, "Request failed", "path", r.URL.Path)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}
