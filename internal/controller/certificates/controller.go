package certificates

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/pki"
)

// parallelRequests bounds the requests that are worked on at once, so that many
// nodes can join together.
const parallelRequests = 8

// raceDelay is after how long a request is looked at again when somebody else changed
// what the decision came from.
const raceDelay = 200 * time.Millisecond

// sweepInterval is how often records that nobody needs are looked for.
const sweepInterval = time.Hour

// maxSteps bounds what one round does to a request: approve, then sign.
const maxSteps = 3

// Signer issues certificates; pki.Signer is one.
type Signer interface {
	Sign(publicKey crypto.PublicKey, template pki.Template) ([]byte, error)
	// Authority is the certificate of the authority that signs now.
	Authority() *x509.Certificate
}

// Config is what the controller needs.
type Config struct {
	// Client writes requests and asks for permissions.
	Client kubernetes.Interface
	// Signer issues client certificates, NodeSigner the serving certificates of nodes.
	Signer, NodeSigner Signer
	// Control says what is the control plane's, now.
	Control func() Control
	// Restored tells that the cluster was restored from a backup once, and Events takes that a node
	// came back that the backup did not know; nil for nobody.
	Restored bool
	Events   record.EventRecorder
	// Duration is how long certificates are good for at most; a year unless set.
	Duration time.Duration
	// Clock is the real clock unless set.
	Clock clock.PassiveClock
}

// Add lets a manager run the controller.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil || cfg.Signer == nil || cfg.NodeSigner == nil || cfg.Control == nil {
		return errors.New("add the certificates controller: it needs a client, signers, and what is the control plane's")
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Node{}, addressIndex, namesOf); err != nil {
		return fmt.Errorf("index nodes by their addresses: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Duration == 0 {
		cfg.Duration = maxTTL
	}
	r := &reconciler{Config: cfg, reader: mgr.GetClient()}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("certificates").
		For(&certificatesv1.CertificateSigningRequest{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallelRequests}).
		Complete(r)
	if err == nil {
		err = mgr.Add(manager.RunnableFunc(r.keepSwept))
	}
	if err != nil {
		return fmt.Errorf("add the certificates controller: %w", err)
	}
	return nil
}

func (r *reconciler) keepSwept(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not tidy up what is known about nodes' identities")
		}
	}, sweepInterval)
	return nil
}

type reconciler struct {
	Config
	reader client.Reader
}

// addressIndex finds nodes by their names and the addresses that they report.
const addressIndex = "everynode.nodeAddress"

func namesOf(object client.Object) []string {
	out := []string{object.GetName()}
	if node, ok := object.(*corev1.Node); ok {
		for _, address := range node.Status.Addresses {
			out = append(out, canonical(address.Address))
		}
	}
	return out
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var cached certificatesv1.CertificateSigningRequest
	if err := r.reader.Get(ctx, key.NamespacedName, &cached); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	csr := cached.DeepCopy()
	for range maxSteps {
		decision, err := decide(
			csr, func(request *request, approved bool) (Facts, error) { return r.facts(ctx, csr, request, approved) },
			r.Clock.Now(),
		)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("decide on certificate request %s: %w", csr.Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Decided on a certificate request", "name", csr.Name, "signer", csr.Spec.SignerName,
			"requester", csr.Spec.Username, "action", decision.Action, "reason", decision.Reason)
		if decision.Action == Wait {
			return ctrl.Result{RequeueAfter: decision.After}, nil
		}
		if csr, err = r.apply(ctx, csr, decision); err != nil {
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
				return ctrl.Result{RequeueAfter: raceDelay}, nil // somebody was faster: look again
			}
			return ctrl.Result{}, fmt.Errorf("%s certificate request %s: %w", decision.Action, key.Name, err)
		}
		if csr == nil {
			return ctrl.Result{}, nil
		}
	}
	return ctrl.Result{}, nil
}

// facts asks for what decides on an approval or, with approved, on the signature.
func (r *reconciler) facts(
	ctx context.Context, csr *certificatesv1.CertificateSigningRequest, request *request, approved bool,
) (Facts, error) {
	claim, err := r.claim(ctx, csr, request.nodeName())
	if err != nil || approved {
		return Facts{Claim: claim}, err
	}
	if isServing(csr.Spec) {
		facts, err := r.servingFacts(ctx, request)
		facts.Claim = claim
		return facts, err
	}
	subresource := "nodeclient"
	if csr.Spec.Username == request.template.CommonName {
		subresource = "selfnodeclient"
	}
	may, err := r.may(ctx, csr, subresource)
	return Facts{MayRequest: may, Claim: claim}, err
}

// servingFacts looks whose the names and addresses are.
func (r *reconciler) servingFacts(ctx context.Context, request *request) (Facts, error) {
	facts := Facts{Control: r.Control(), Holders: map[string]string{}}
	var added networkingv1.ServiceCIDRList
	if err := r.reader.List(ctx, &added); err != nil {
		return Facts{}, fmt.Errorf("read the networks of Services: %w", err)
	}
	facts.Control.Networks = append(slices.Clone(facts.Control.Networks), networksOf(added.Items)...)
	var node corev1.Node
	err := r.reader.Get(ctx, client.ObjectKey{Name: request.nodeName()}, &node)
	if apierrors.IsNotFound(err) {
		return facts, nil
	}
	if err != nil {
		return Facts{}, fmt.Errorf("look up the node: %w", err)
	}
	facts.Node = &node
	for _, san := range request.sans {
		var nodes corev1.NodeList
		if err := r.reader.List(ctx, &nodes, client.MatchingFields{addressIndex: san}); err != nil {
			return Facts{}, fmt.Errorf("look for nodes that report %s: %w", san, err)
		}
		for i := range nodes.Items {
			if other := &nodes.Items[i]; other.Name != node.Name && holds(other, san, &node) {
				facts.Holders[san] = other.Name
			}
		}
	}
	return facts, nil
}

func networksOf(cidrs []networkingv1.ServiceCIDR) (out []netip.Prefix) {
	for i := range cidrs {
		for _, text := range cidrs[i].Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
}

// holds reports whether a name or address that both nodes report belongs to the other
// one: it is the other's name, or was there first. So nobody who reports what others
// have keeps them from their certificates.
func holds(other *corev1.Node, san string, node *corev1.Node) bool {
	if san == other.Name || san == node.Name {
		return san == other.Name
	}
	return !node.CreationTimestamp.Before(&other.CreationTimestamp)
}

// may asks whether the requester may create the virtual subresource that stands
// for getting a certificate without a person's approval.
func (r *reconciler) may(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	subresource string) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: certificatesv1.GroupName, Version: "*",
			Resource: "certificatesigningrequests", Subresource: subresource,
		},
	}}
	for key, value := range csr.Spec.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(value)
	}
	answer, err := r.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may: %w", csr.Spec.Username, err)
	}
	return answer.Status.Allowed, nil
}

// apply does what was decided and returns the request as it is then, nil if it is gone.
func (r *reconciler) apply(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	d Decision) (*certificatesv1.CertificateSigningRequest, error) {
	requests := r.Client.CertificatesV1().CertificateSigningRequests()
	switch d.Action {
	case Approve:
		if err := r.keep(ctx, d.request.nodeName(), d.claim, d.seen); err != nil {
			return nil, err
		}
		r.tellCameBack(csr, d)
		r.addCondition(csr, certificatesv1.CertificateApproved, d)
		return requests.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	case Sign:
		template := d.request.template
		template.TTL = min(template.TTL, r.Duration)
		signer := r.Signer
		if isServing(csr.Spec) {
			signer = r.NodeSigner
		}
		if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
			if err := r.noteSigned(ctx, d.request.nodeName(), isServing(csr.Spec)); err != nil {
				return nil, err
			}
		}
		certificate, err := signer.Sign(d.request.publicKey, template)
		if err != nil {
			return nil, err
		}
		csr.Status.Certificate = certificate
		return requests.UpdateStatus(ctx, csr, metav1.UpdateOptions{})
	case Deny:
		r.addCondition(csr, certificatesv1.CertificateDenied, d)
		return requests.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	case Fail:
		r.addCondition(csr, certificatesv1.CertificateFailed, d)
		return requests.UpdateStatus(ctx, csr, metav1.UpdateOptions{})
	case Delete:
		return nil, requests.Delete(ctx, csr.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &csr.UID}})
	}
	return nil, fmt.Errorf("unknown action %q", d.Action)
}

func (r *reconciler) addCondition(
	csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType, d Decision,
) {
	now := metav1.NewTime(r.Clock.Now())
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: d.Reason, Message: d.Message,
		LastUpdateTime: now, LastTransitionTime: now,
	})
}
