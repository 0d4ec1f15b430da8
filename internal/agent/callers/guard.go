package callers

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	certificates "k8s.io/apiserver/pkg/authentication/request/x509"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/pki"
)

// How long answers of the API server are good for, and how long one is waited for: as in a kubelet.
const (
	rememberToken = 2 * time.Minute
	rememberYes   = 5 * time.Minute
	rememberNo    = 30 * time.Second
	patience      = 10 * time.Second
	// maxAnswers is how many rights are remembered at most.
	maxAnswers = 4096
)

// Config says for which node to decide. All fields are needed.
type Config struct {
	NodeName string
	// Client asks the API server with the rights of the node.
	Client kubernetes.Interface
	// ClientCAs are the authorities of callers' certificates, as they are now.
	ClientCAs func() *x509.CertPool
	// Now is the time at which their certificates are verified.
	Now func() time.Time
}

// Guard lets those through who may.
type Guard struct {
	cfg Config
	// certificate knows callers by their certificates alone, identify by their tokens too.
	certificate, identify authenticator.Request
	answers               *cache.LRUExpireCache
	strangers             *strangers
}

// New returns a Guard; it makes no call.
func New(cfg Config) *Guard {
	g := &Guard{cfg: cfg, answers: cache.NewLRUExpireCache(maxAnswers), strangers: newStrangers()}
	options := func() (x509.VerifyOptions, bool) {
		out := certificates.DefaultVerifyOptions()
		out.Roots, out.CurrentTime = cfg.ClientCAs(), cfg.Now()
		return out, true
	}
	// Tokens are kept as hashes only.
	tokens := tokencache.New(authenticator.TokenFunc(g.review), false, rememberToken, rememberToken)
	g.certificate = certificates.NewDynamic(options, certificates.CommonNameUserConversion)
	g.identify = group.NewAuthenticatedGroupAdder(union.New(g.certificate, bearertoken.New(tokens)))
	return g
}

// review asks the API server whose token it is.
func (g *Guard) review(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	review, err := g.cfg.Client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("ask the API server whose token it is: %w", err)
	}
	if !review.Status.Authenticated {
		if review.Status.Error != "" {
			return nil, false, errors.New(review.Status.Error)
		}
		return nil, false, nil
	}
	u := review.Status.User
	extra := make(map[string][]string, len(u.Extra))
	for key, values := range u.Extra {
		extra[key] = values
	}
	who := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}
	return &authenticator.Response{User: who}, true, nil
}

// Protect lets requests through to next whose callers may make them. Others are answered in a kubelet's words.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _ := netip.ParseAddrPort(r.RemoteAddr)
		token := r.Header.Get("Authorization") != ""
		if token && g.strangers.tires(from.Addr(), g.cfg.Now()) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many tokens that nobody has came from this address", http.StatusTooManyRequests)
			return
		}
		who, ok, err := g.identify.AuthenticateRequest(r)
		if token && !ok {
			g.strangers.failed(from.Addr(), g.cfg.Now())
		}
		if err != nil {
			klog.FromContext(r.Context()).Error(
				err, "Could not tell who calls the node", "path", r.URL.Path, "from", r.RemoteAddr,
			)
		}
		if err != nil || !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		verb, subresources := need(r.Method, r.URL.Path)
		allowed, err := g.allowed(r, who.User, verb, subresources)
		switch {
		case err != nil:
			klog.FromContext(r.Context()).Error(
				err, "Could not tell what a caller of the node may do", "user", who.User.GetName(), "path", r.URL.Path,
			)
			http.Error(w, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource(s)=%v)",
				who.User.GetName(), verb, subresources), http.StatusInternalServerError)
		case !allowed:
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)",
				who.User.GetName(), verb, subresources), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (g *Guard) allowed(r *http.Request, who user.Info, verb string, subresources []string) (bool, error) {
	if who.GetName() == pki.KubeletClientUser {
		// Only a certificate can make somebody the API server.
		if shown, ok, err := g.certificate.AuthenticateRequest(r); ok && err == nil &&
			shown.User.GetName() == pki.KubeletClientUser {
			return true, nil
		}
	}
	for _, subresource := range subresources {
		yes, err := g.ask(r.Context(), who, verb, subresource)
		if err != nil || yes {
			return yes, err
		}
	}
	return false, nil
}

// question is what an answer is remembered by.
func question(spec authorizationv1.SubjectAccessReviewSpec) (string, error) {
	data, err := spec.Marshal()
	if err != nil {
		return "", fmt.Errorf("write down a question about rights: %w", err)
	}
	return string(data), nil
}

func (g *Guard) ask(ctx context.Context, who user.Info, verb, subresource string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb:        verb,
			Version:     "v1",
			Resource:    "nodes",
			Subresource: subresource,
			Name:        g.cfg.NodeName,
		}}
	for key, values := range who.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
	key, err := question(spec)
	if err != nil {
		return false, err
	}
	if known, ok := g.answers.Get(key); ok {
		yes, _ := known.(bool)
		return yes, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	review, err := g.cfg.Client.AuthorizationV1().SubjectAccessReviews().Create(
		ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{},
	)
	if err != nil {
		return false, fmt.Errorf("ask the API server what %s may: %w", who.GetName(), err)
	}
	keep := rememberNo
	if review.Status.Allowed {
		keep = rememberYes
	}
	g.answers.Add(key, review.Status.Allowed, keep)
	return review.Status.Allowed, nil
}
