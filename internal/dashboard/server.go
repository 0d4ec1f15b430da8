package dashboard

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/why"
)

//go:embed page
var page embed.FS

// Config says what is shown, and how other parts of the program help.
type Config struct {
	// Cluster is how the cluster is reached, by whose rights all is seen and done.
	Cluster *rest.Config
	// Name is what the page calls the cluster.
	Name string
	// Plan says what applying a manifest would do: a value for JSON, and text for people.
	Plan func(ctx context.Context, s *survey.Survey, hidden string, manifest []byte) (forecast any, text string, err error)
	// More adds the events and the last log lines of a pod that has failed.
	More func(ctx context.Context, p *why.Place)
}

// Dashboard is one run of the page.
type Dashboard struct {
	config   Config
	core     kubernetes.Interface
	cluster  *cluster
	listener net.Listener
	key      string
	ready    chan struct{}
	waits    waits
}

// waits is how long the page's server waits for who sends slowly.
type waits struct{ header, body, refused time.Duration }

// Listen opens the page's port on this machine; 0 is one that is free.
func Listen(c Config, port int) (*Dashboard, error) {
	config := rest.CopyConfig(c.Cluster)
	config.QPS, config.UserAgent = -1, "everynode-dashboard"
	own, err := client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the kubeconfig: %w", err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
	if err != nil {
		return nil, fmt.Errorf("open the page's port: %w; choose another --port", err)
	}
	return &Dashboard{
		config:   c,
		core:     core,
		cluster:  newCluster(core, own),
		listener: listener,
		key:      newKey(),
		ready:    make(chan struct{}),
		waits:    waits{header: 10 * time.Second, body: 30 * time.Second, refused: time.Second},
	}, nil
}

// URL is the page's address. What follows # never leaves the browser.
func (d *Dashboard) URL() string { return "http://" + d.listener.Addr().String() + "/#key=" + d.key }

// Run answers until ctx ends. It returns an error if the cluster cannot be read.
func (d *Dashboard) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, port, err := net.SplitHostPort(d.listener.Addr().String())
	if err != nil {
		return fmt.Errorf("read the page's own address: %w", err)
	}
	server := &http.Server{
		Handler:           &guard{key: d.key, port: port, next: d.routes(), within: d.waits.body, refused: d.waits.refused},
		ReadHeaderTimeout: d.waits.header, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 2)
	go func() {
		if err := d.cluster.run(ctx, func() { close(d.ready) }); err != nil {
			ended <- err
		}
	}()
	go func() { ended <- server.Serve(d.listener) }()
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	cancel()
	_ = server.Close()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

func (d *Dashboard) routes() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // The folder is part of the program.
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /api/stream", d.whenReady(d.stream))
	mux.HandleFunc("GET /api/node", d.whenReady(d.node))
	mux.HandleFunc("GET /api/why", d.whenReady(d.why))
	mux.HandleFunc("GET /api/revisions", d.whenReady(d.revisions))
	mux.HandleFunc("GET /api/timeline", d.whenReady(d.timeline))
	mux.HandleFunc("GET /api/events", d.whenReady(d.events))
	mux.HandleFunc("GET /api/logs", d.logs)
	mux.HandleFunc("GET /api/rights", d.rights)
	mux.HandleFunc("POST /api/plan", d.whenReady(d.plan))
	mux.HandleFunc("POST /api/rollout", d.act)
	return mux
}

// whenReady waits until all is known, or says why it is not.
func (d *Dashboard) whenReady(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for {
			_, changed := d.cluster.at()
			select {
			case <-d.ready:
				f(w, r)
				return
			case <-r.Context().Done():
				return
			default:
			}
			if trouble := d.cluster.troubles.text(); trouble != "" {
				http.Error(w, trouble, http.StatusServiceUnavailable)
				return
			}
			select {
			case <-d.ready:
			case <-changed:
			case <-r.Context().Done():
			}
		}
	}
}

// answer writes a value, or the error.
func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		code := http.StatusBadRequest
		var status apierrors.APIStatus
		if errors.As(err, &status) && isFailure(status.Status().Code) {
			code = int(status.Status().Code)
		}
		http.Error(w, firstLine(err.Error()), code)
		return
	}
	raw, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw) // Who asked may be gone.
}

// isFailure reports whether it is a code that an error can have. The cluster may say anything.
func isFailure(code int32) bool { return code >= 400 && code < 600 }

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// named reads namespace/name.
func named(text string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q is not NAMESPACE/NAME", text)
	}
	return namespace, name, nil
}
