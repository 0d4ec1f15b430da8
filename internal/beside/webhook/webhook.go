// Package webhook answers an API server that asks what DaemonSets and their pods are to be, beside Kubernetes' own
// DaemonSet controller. What it answers is decided in internal/beside/admit; here is read what that follows from. Every
// replica answers, the one that leads and the others: what the answer goes by is read from the API and not from a
// cache, which may be behind.
package webhook

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/beside/fresh"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/beside/steps"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
)

const (
	// answerWithin is how long what an answer goes by may take to be read. The API server waits a second longer, and then
	// makes the pod as it is.
	answerWithin = 2 * time.Second
	// readWithin is how long that of it may take which is read for all pods that are made together: it is tried once more.
	readWithin = time.Second
	// readApart is the least time between two reads for pods of one DaemonSet: those that are made together are asked
	// about within so long.
	readApart = 5 * time.Millisecond
	// maxReview is how large a question may be: an object of etcd's size, twice, and more.
	maxReview = 8 << 20
)

// Config is what a Server needs.
type Config struct {
	Client kubernetes.Interface
	Own    *everynode.Client
	// Account is our own: what it writes may give a DaemonSet back.
	Account string
	// Maker is the account of the controller that makes DaemonSets' pods: for those of others nothing is answered.
	Maker string
	// Fail has a pod refused whose revision cannot be told; it is admitted as it was made without.
	Fail       bool
	Registerer prometheus.Registerer
}

// Server is the webhook.
type Server struct {
	cfg     Config
	metrics *metrics
	cert    atomic.Pointer[tls.Certificate]

	contents contents
	variants varieties
	changes  fresh.Reads[types.NamespacedName, change]
	// ungated tells that nobody could let a pod through a gate.
	ungated atomic.Bool
	// serves tells that questions are answered.
	serves atomic.Bool

	mu    sync.Mutex
	steps *steps.Book
	cache revisions
	// sets are the DaemonSets that there are. What is not among them is missing.
	sets map[types.NamespacedName]plan.Standing
	// follows are the names of the policies that the rollouts of DaemonSets named last.
	follows map[types.NamespacedName]string
	// lacks are DaemonSets whose pods were asked about while they had no rollout.
	lacks map[types.NamespacedName]lack
}

// New returns a server that has no certificate yet.
func New(cfg Config) (*Server, error) {
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, metrics: m, steps: steps.New(), cache: newRevisions(),
		sets: map[types.NamespacedName]plan.Standing{}, follows: map[types.NamespacedName]string{},
		lacks:    map[types.NamespacedName]lack{},
		contents: contents{client: cfg.Client, now: time.Now, read: map[given]proven{}},
		variants: varieties{client: cfg.Client, known: map[variety]*variant.Molds{}},
		changes:  fresh.Reads[types.NamespacedName, change]{Apart: readApart, Abreast: 2}}, nil
}

// Use has the server answer with a certificate from now on, which ends then.
func (s *Server) Use(c *tls.Certificate, ends time.Time) {
	s.cert.Store(c)
	s.metrics.ends.Set(float64(ends.Unix()))
}

// LetPodsWait says whether somebody can let pods through that wait behind a gate. While nobody can none is put there.
func (s *Server) LetPodsWait(is bool) { s.ungated.Store(!is) }

// LetsPodsWait reports whether pods are put behind a gate.
func (s *Server) LetsPodsWait() bool { return !s.ungated.Load() }

// Ready reports whether there is a certificate to answer with.
func (s *Server) Ready() bool { return s.cert.Load() != nil }

// Serves reports whether questions are answered.
func (s *Server) Serves() bool { return s.serves.Load() }

// Serve answers at the listener until ctx ends.
func (s *Server) Serve(ctx context.Context, at net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle(registration.PodsPath, s.handler(ctx, "pod", s.pod))
	mux.Handle(registration.SetsPath, s.handler(ctx, "daemonset", s.daemonSet))
	mux.Handle(registration.PlacementPath, s.handler(ctx, "placement", s.placement))
	mux.Handle(registration.NodesPath, s.handler(ctx, "node", s.node))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				c := s.cert.Load()
				if c == nil {
					return nil, errors.New("there is no certificate yet")
				}
				return c, nil
			}},
	}
	s.serves.Store(true)
	defer s.serves.Store(false)
	stop := context.AfterFunc(ctx, func() {
		s.serves.Store(false)
		// What was asked is answered; the API server would take silence for a fault.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(ending) // Serve's error is the one that counts.
	})
	defer stop()
	err := server.ServeTLS(at, "", "")
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the webhook: %w", err)
}

// answer decides about one request. The text says in a word or two what was answered, for counting.
type answer func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, string)

func (s *Server) handler(ctx context.Context, about string, decide answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		err := json.NewDecoder(io.LimitReader(r.Body, maxReview)).Decode(&review)
		if err != nil || review.Request == nil {
			s.metrics.answers.WithLabelValues(about, notUnderstood).Inc()
			http.Error(w, "this is no AdmissionReview", http.StatusBadRequest)
			return
		}
		reading, cancel := context.WithTimeout(klog.NewContext(r.Context(), klog.FromContext(ctx)), answerWithin)
		defer cancel()
		response, what := decide(reading, review.Request)
		s.metrics.answers.WithLabelValues(about, what).Inc()
		response.UID = review.Request.UID
		if response.Patch != nil {
			response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
		}
		review.Request, review.Response = nil, response
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // The API server may have gone.
	})
}

func admitted() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }

func refused(why string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: why,
	}}
}
