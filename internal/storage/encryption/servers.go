package encryption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/storage/encryption/plan"
)

// AskServers asks the control plane by its API, as its administrator.
func AskServers(client kubernetes.Interface, now func() time.Time) Servers {
	return &apiServers{client, now}
}

// apiServers asks the control plane by its API.
type apiServers struct {
	client kubernetes.Interface
	now    func() time.Time
}

// asBusy marks the errors of a server that has too much to do right now, or whose database has a
// bad moment. All that is asked here may be asked again.
func asBusy(err error) error {
	if apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("%w: %w", errBusy, err)
	}
	return err
}

// Status implements Servers.
func (s *apiServers) Status(ctx context.Context) (out Status, err error) {
	body, err := s.client.CoreV1().RESTClient().Get().AbsPath(Path).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return out, errors.New(
			"ask how Secrets are encrypted: this server cannot tell; run the same version of everynode as the server",
		)
	}
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	if err = asBusy(err); errors.Is(err, errBusy) {
		return out, fmt.Errorf("ask how Secrets are encrypted: %w", err)
	}
	if err != nil {
		return out, fmt.Errorf("ask how Secrets are encrypted: %w; does the control plane run?", err)
	}
	return out, nil
}

// Rewrite implements Servers.
func (s *apiServers) Rewrite(ctx context.Context) (out Rewritten, err error) {
	body, err := s.client.CoreV1().RESTClient().Post().AbsPath(RewritePath).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	if err != nil {
		return out, fmt.Errorf("have objects written again: %w", asBusy(err))
	}
	return out, nil
}

// Following implements Servers.
func (s *apiServers) Following(ctx context.Context, hash string) (out []plan.Server, err error) {
	leases, err := s.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
		LabelSelector: LeaseLabel,
	})
	if err != nil {
		return nil, fmt.Errorf("ask which servers there are: %w", asBusy(err))
	}
	for _, l := range leases.Items {
		one := plan.Server{
			Name:    l.Name,
			Follows: l.Annotations[HashAnnotation] == hash,
			Settled: l.Annotations[SettledAnnotation] == "true",
		}
		if holder := l.Spec.HolderIdentity; holder != nil {
			one.Name += " on " + *holder
		}
		if at, lasts := l.Spec.RenewTime, l.Spec.LeaseDurationSeconds; at == nil || lasts == nil ||
			s.now().After(at.Add(time.Duration(*lasts)*time.Second)) {
			one.Silent = true
		}
		out = append(out, one)
	}
	return out, nil
}
