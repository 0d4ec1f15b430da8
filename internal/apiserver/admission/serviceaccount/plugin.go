// Package serviceaccount gives every pod a service account and mounts the
// account's token, the cluster's CA and the namespace's name into its containers.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/podspec/references"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// DefaultName is the account of pods that name none.
const DefaultName = "default"

// A namespace's default account is made by a controller a moment after the
// namespace; the first pods wait for it.
const (
	defaultAccountAttempts = 10
	defaultAccountPause    = 150 * time.Millisecond
)

// Accounts reads one service account as it is now.
type Accounts interface {
	GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
}

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	accounts Accounts
	names    names.NameGenerator
	clock    clock.Clock
}

var (
	_ admission.MutationInterface   = &Plugin{}
	_ admission.ValidationInterface = &Plugin{}
)

// New makes the plugin.
func New(accounts Accounts) *Plugin {
	return &Plugin{
		Handler: admission.NewHandler(admission.Create), accounts: accounts,
		names: names.SimpleNameGenerator, clock: clock.RealClock{},
	}
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, err := podOf(a)
	if pod == nil || err != nil {
		return err
	}
	if podfacts.IsMirror(pod) {
		return checkMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = DefaultName
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account, err := p.account(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName)
	if err != nil {
		return refuse(a, err)
	}
	if mountsToken(pod, account) {
		mountToken(pod, p.names)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, err := podOf(a)
	if pod == nil || err != nil {
		return err
	}
	if podfacts.IsMirror(pod) {
		return checkMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		return admission.NewForbidden(a, errors.New("no service account specified for pod"))
	}
	if _, err := p.account(ctx, a.GetNamespace(), pod.Spec.ServiceAccountName); err != nil {
		return refuse(a, err)
	}
	return nil
}

// account waits a little for the account that a controller is about to make.
func (p *Plugin) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if bad := content.IsPathSegmentName(name); len(bad) > 0 {
		return nil, badName{fmt.Sprintf("error looking up service account %s/%s: invalid resource name %q: %v",
			namespace, name, name, bad)}
	}
	attempts := 1
	if name == DefaultName {
		attempts = defaultAccountAttempts
	}
	for attempt := 1; ; attempt++ {
		account, err := p.accounts.GetServiceAccount(ctx, namespace, name)
		if err == nil {
			return account, nil
		}
		if !apierrors.IsNotFound(err) || attempt >= attempts {
			return nil, fmt.Errorf("error looking up service account %s/%s: %w", namespace, name, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("error looking up service account %s/%s: %w", namespace, name, err)
		case <-p.clock.After(defaultAccountPause):
		}
	}
}

func podOf(a admission.Attributes) (*corev1.Pod, error) {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil, nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Pod but got a %T", a.GetObject()))
	}
	return pod, nil
}

// badName is the error about a name that no account can have.
type badName struct{ message string }

func (b badName) Error() string { return b.message }

// refuse blames the pod when its account is missing or cannot exist, and the
// server otherwise.
func refuse(a admission.Attributes, err error) error {
	if apierrors.IsNotFound(err) || errors.As(err, &badName{}) {
		return admission.NewForbidden(a, err)
	}
	return apierrors.NewInternalError(err)
}

// checkMirror keeps a node from getting at secrets through a pod that it
// reports itself.
func checkMirror(a admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return admission.NewForbidden(a, errors.New("a mirror pod may not reference service accounts"))
	}
	secrets := false
	references.Of(&pod.Spec, func(resource, _ string) { secrets = secrets || resource == references.Secrets })
	if secrets {
		return admission.NewForbidden(a, errors.New("a mirror pod may not reference secrets"))
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				return admission.NewForbidden(a, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	return nil
}
