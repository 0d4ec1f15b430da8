// Package revocation refuses the certificates of nodes that were revoked. What is
// revoked is in Secrets of kube-system, which each server watches: a request with
// such a certificate is nobody's, requests that are under way end, and the node's
// agent is called no more. Until a server knows the Secrets it lets no node in.
package revocation

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/node/identity"
	"github.com/everynode/everynode/internal/pki"
)

// startPatience is how long a node's request waits while a server that has just
// started does not know yet what is revoked.
const startPatience = 20 * time.Second

// List is what is revoked.
type List struct {
	informer cache.SharedInformer
	known    chan struct{} // closed when it is complete

	mu        sync.Mutex
	revoked   map[string]identity.Revocation // by the name of the Secret
	requests  map[string]map[*request]bool   // that are under way, by node
	listeners []func(node string)
}

// request is one that a node makes.
type request struct {
	issued time.Time // its certificate
	end    context.CancelFunc
}

// New makes a list that is read through client once Run has been called.
func New(client kubernetes.Interface) *List {
	secrets := cache.NewFilteredListWatchFromClient(
		client.CoreV1().RESTClient(), "secrets", metav1.NamespaceSystem,
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("type", string(identity.RevocationType)).String()
		},
	)
	return &List{
		informer: cache.NewSharedInformer(secrets, &corev1.Secret{}, 0), known: make(chan struct{}),
		revoked: map[string]identity.Revocation{}, requests: map[string]map[*request]bool{},
	}
}

// Run follows the Secrets until ctx ends. It returns when they are known.
func (l *List) Run(ctx context.Context) error {
	registration, err := l.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.add(ctx, obj) },
		UpdateFunc: func(_, obj any) { l.add(ctx, obj) },
		DeleteFunc: l.remove,
	})
	if err != nil {
		return fmt.Errorf("watch what is revoked: %w", err)
	}
	go l.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return errors.New("read what is revoked: the server stops")
	}
	close(l.known)
	return nil
}

// OnRevoke has f called with the name of each node whose certificates are revoked
// from then on. f must not block.
func (l *List) OnRevoke(f func(node string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = append(l.listeners, f)
}

func (l *List) add(ctx context.Context, obj any) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return
	}
	revocation, err := identity.ReadRevocation(secret)
	if err != nil {
		klog.FromContext(ctx).Error(err, "A revocation cannot be read, and revokes nothing")
		return
	}
	for _, end := range l.store(secret.Name, revocation) {
		end()
	}
}

// store returns what is to be called now.
func (l *List) store(name string, revocation identity.Revocation) (calls []func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revoked[name] = revocation
	for r := range l.requests[revocation.Node] {
		if revocation.Covers(r.issued) {
			calls = append(calls, r.end)
		}
	}
	for _, listener := range l.listeners {
		calls = append(calls, func() { listener(revocation.Node) })
	}
	return calls
}

func (l *List) remove(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if secret, ok := obj.(*corev1.Secret); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.revoked, secret.Name)
	}
}

// nodeOf is the node whose certificate it is, or nothing.
func nodeOf(cert *x509.Certificate) (node string, issued time.Time, ok bool) {
	node, ok = strings.CutPrefix(cert.Subject.CommonName, pki.NodeUserPrefix)
	return node, cert.NotBefore.Add(pki.Backdate), ok
}

// Check says why a verified certificate is refused: it is a node's, and revoked.
func (l *List) Check(cert *x509.Certificate) error {
	node, issued, ok := nodeOf(cert)
	if !ok {
		return nil
	}
	select {
	case <-l.known:
	default:
		return errors.New("this server has just started and does not know yet which certificates are revoked")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal(node, issued)
}

func (l *List) refusal(node string, issued time.Time) error {
	if revocation, ok := l.revoked[identity.RevocationName(node)]; ok && revocation.Covers(issued) {
		return fmt.Errorf("the certificates of node %s were revoked at %s", node, revocation.Before.Format(time.RFC3339))
	}
	return nil
}

// Guard ends what nodes have under way when they are revoked, and hangs up on who
// comes with a revoked certificate; that it is refused is up to Check. It belongs
// in front of everything.
func (l *List) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		node, issued, ok := nodeOf(r.TLS.PeerCertificates[0])
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		l.await(r.Context())
		ctx, done, refused := l.begin(r.Context(), node, issued)
		defer done()
		if refused {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// await waits a while for the list.
func (l *List) await(ctx context.Context) {
	select {
	case <-l.known:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case <-l.known:
	case <-ctx.Done():
	}
}

// begin notes a request, so that it can be ended.
func (l *List) begin(ctx context.Context, node string,
	issued time.Time) (_ context.Context, done func(), refused bool) {
	ctx, cancel := context.WithCancel(ctx)
	r := &request{issued: issued, end: cancel}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal(node, issued) != nil {
		return ctx, cancel, true
	}
	if l.requests[node] == nil {
		l.requests[node] = map[*request]bool{}
	}
	l.requests[node][r] = true
	return ctx, func() {
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.requests[node], r)
		if len(l.requests[node]) == 0 {
			delete(l.requests, node)
		}
	}, false
}
