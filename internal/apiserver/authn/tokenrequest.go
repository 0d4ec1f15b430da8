package authn

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
)

const (
	defaultTokenSeconds = 60 * 60
	minTokenSeconds     = 10 * 60
	maxTokenSeconds     = 1 << 32
)

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// TokenREST serves serviceaccounts/token: it issues a token for an account.
type TokenREST struct {
	tokens *Tokens
}

var (
	_ rest.Storage                  = &TokenREST{}
	_ rest.NamedCreater             = &TokenREST{}
	_ rest.Scoper                   = &TokenREST{}
	_ rest.GroupVersionKindProvider = &TokenREST{}
)

// NewTokenREST makes the storage of the subresource.
func NewTokenREST(tokens *Tokens) *TokenREST { return &TokenREST{tokens: tokens} }

// New implements rest.Storage.
func (r *TokenREST) New() runtime.Object { return &authenticationv1.TokenRequest{} }

// Destroy implements rest.Storage.
func (r *TokenREST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r *TokenREST) NamespaceScoped() bool { return true }

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (r *TokenREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return tokenRequestKind
}

// Create implements rest.NamedCreater.
func (r *TokenREST) Create(
	ctx context.Context,
	name string,
	obj runtime.Object,
	createValidation rest.ValidateObjectFunc,
	_ *metav1.CreateOptions,
) (runtime.Object, error) {
	request, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a TokenRequest: %T", obj))
	}
	request = request.DeepCopy()
	if err := fillIdentity(request, genericapirequest.NamespaceValue(ctx), name); err != nil {
		return nil, err
	}
	if createValidation != nil {
		if err := createValidation(ctx, request.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if errs := validateTokenRequest(request); len(errs) > 0 {
		return nil, apierrors.NewInvalid(tokenRequestKind.GroupKind(), "", errs)
	}
	account, err := r.tokens.getters.GetServiceAccount(ctx, request.Namespace, name)
	if err != nil {
		return nil, err
	}
	bound, err := r.bind(ctx, account, request.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	if longest := int64(r.tokens.longest / time.Second); longest > 0 && *request.Spec.ExpirationSeconds > longest {
		warning.AddWarning(
			ctx, "",
			fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", *request.Spec.ExpirationSeconds, longest),
		)
		request.Spec.ExpirationSeconds = &longest
	}
	ttl := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
	issued, err := r.tokens.Generate(account, bound, request.Spec.Audiences, ttl)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, "JTI="+issued.ID)
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = r.tokens.Audiences()
	}
	request.CreationTimestamp = metav1.NewTime(r.tokens.clock.Now())
	request.Status = authenticationv1.TokenRequestStatus{
		Token:               issued.Token,
		ExpirationTimestamp: metav1.NewTime(issued.Expires),
	}
	return request, nil
}

// fillIdentity takes what the body leaves out from the URL and refuses what contradicts it.
func fillIdentity(request *authenticationv1.TokenRequest, namespace, name string) error {
	if request.Name == "" {
		request.Name = name
	}
	if request.Namespace == "" {
		request.Namespace = namespace
	}
	if request.Name != name {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name in the URL (%q) and in the body (%q) differ", name, request.Name,
		))
	}
	if request.Namespace != namespace {
		return apierrors.NewBadRequest(
			"the namespace of the provided object does not match the namespace sent on the request",
		)
	}
	if request.Spec.ExpirationSeconds == nil {
		request.Spec.ExpirationSeconds = new(int64(defaultTokenSeconds))
	}
	return nil
}

func validateTokenRequest(request *authenticationv1.TokenRequest) field.ErrorList {
	at := field.NewPath("spec", "expirationSeconds")
	seconds := *request.Spec.ExpirationSeconds
	var errs field.ErrorList
	if seconds < minTokenSeconds {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration less than 10 minutes"))
	}
	if seconds > maxTokenSeconds {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

// bind reads the object that the token shall be bound to.
func (r *TokenREST) bind(
	ctx context.Context, account *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference,
) (Binding, error) {
	if ref == nil {
		return Binding{}, nil
	}
	if err := checkName(ref.Name); err != nil {
		return Binding{}, err
	}
	switch schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind) {
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		return r.bindPod(ctx, account, ref)
	case corev1.SchemeGroupVersion.WithKind("Secret"):
		secret, err := r.tokens.getters.GetSecret(ctx, account.Namespace, ref.Name)
		if err != nil {
			return Binding{}, err
		}
		return Binding{Secret: secret}, sameUID("secrets", ref, secret.UID)
	case corev1.SchemeGroupVersion.WithKind("Node"):
		node, err := r.tokens.getters.GetNode(ctx, ref.Name)
		if err != nil {
			return Binding{}, err
		}
		return Binding{Node: node}, sameUID("nodes", ref, node.UID)
	}
	return Binding{}, apierrors.NewBadRequest(fmt.Sprintf(
		"cannot bind token to object of type %s", schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).String()))
}

// checkName refuses what cannot be the name of any object.
func checkName(name string) error {
	if name == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	if msgs := content.IsPathSegmentName(name); len(msgs) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(msgs, ";")))
	}
	return nil
}

func (r *TokenREST) bindPod(
	ctx context.Context, account *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference,
) (Binding, error) {
	pod, err := r.tokens.getters.GetPod(ctx, account.Namespace, ref.Name)
	if err != nil {
		return Binding{}, err
	}
	if pod.Spec.ServiceAccountName != account.Name {
		return Binding{}, apierrors.NewBadRequest(fmt.Sprintf(
			"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
	}
	bound := Binding{Pod: pod}
	if name := pod.Spec.NodeName; name != "" {
		// The node's UID is told if the node is there; the token does not depend on it.
		bound.Node, err = r.tokens.getters.GetNode(ctx, name)
		if apierrors.IsNotFound(err) {
			bound.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		} else if err != nil {
			return Binding{}, err
		}
	}
	return bound, sameUID("pods", ref, pod.UID)
}

func sameUID(resource string, ref *authenticationv1.BoundObjectReference, uid types.UID) error {
	if ref.UID == "" || ref.UID == uid {
		return nil
	}
	return apierrors.NewConflict(corev1.Resource(resource), ref.Name, fmt.Errorf(
		"the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted "+
			"and then recreated", ref.UID))
}
