package beside

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/opening"
	"github.com/everynode/everynode/internal/beside/registration"
)

// The faults of a cluster for which this is not.
var (
	errOwn = errors.New("this is Everynode's own server, which follows policies by itself: " +
		"start `everynode controller` without --beside, or nothing at all")
	errNoKinds = errors.New("the API does not know RolloutPolicies; " +
		"teach it with: everynode controller --print-crds | kubectl apply -f -")
)

// newEnough returns an error for a Kubernetes that is too old, or that does not say what it is.
func newEnough(v *apiversion.Info) error {
	old, err := registration.TooOld(v.GitVersion)
	if err != nil {
		return fmt.Errorf("read the version %q of the API: %w", v.GitVersion, err)
	}
	if old {
		return fmt.Errorf("the API is of version %s; beside its DaemonSet controller Everynode needs %s or newer",
			v.GitVersion, registration.Oldest)
	}
	return nil
}

// suits returns an error where this is not for the cluster. One that has the kinds built in is Everynode's own.
func suits(ctx context.Context, client kubernetes.Interface) error {
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API for its version: %w", err)
	}
	err = newEnough(v)
	if err != nil {
		return err
	}
	_, err = client.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return errNoKinds
	case err != nil:
		return fmt.Errorf("ask the API which kinds it has: %w", err)
	}
	err = client.Discovery().RESTClient().Get().AbsPath(opening.Definition).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err):
		return errOwn
	case err != nil:
		return fmt.Errorf("read the definition of RolloutPolicies: %w", err)
	}
	return nil
}
