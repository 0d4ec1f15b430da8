// Package opening finds out whether NodeStartups can be followed on an API server of others, and writes on its Nodes.
package opening

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/beside/joining"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
)

// FieldManager is who writes.
const FieldManager = "everynode-beside"

// Definition is where an API server of others has that of RolloutPolicies; Everynode's own has the kind built in.
const Definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rolloutpolicies.everynode.io"

// lookEvery is the time between two looks whether NodeStartups can be followed.
const lookEvery = 5 * time.Second

// Asker asks the API what may be done.
type Asker struct {
	API kubernetes.Interface
	Own *everynode.Client
	// Rules is the file that gives the rights.
	Rules string
}

// errOwn says that there is nothing to do.
var errOwn = errors.New("the API server is Everynode's own, whose control loops follow them")

// Await returns when NodeStartups can be followed, and reports whether that was before ctx ended. Why they cannot is
// logged.
func (a Asker) Await(ctx context.Context) bool {
	last := ""
	for {
		err := a.may(ctx)
		switch {
		case err == nil:
			return true
		case errors.Is(err, errOwn):
			klog.FromContext(ctx).V(2).Info("NodeStartups are not followed here", "why", err)
			return false
		}
		if last != err.Error() && ctx.Err() == nil {
			last = err.Error()
			klog.FromContext(ctx).Info("NodeStartups are not followed", "why", last)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(lookEvery):
		}
	}
}

// may returns an error while NodeStartups cannot be followed.
func (a Asker) may(ctx context.Context) error {
	lacks := fmt.Errorf("the account may not read NodeStartups or patch Nodes: apply %s again, or upgrade the chart",
		a.Rules)
	_, err := a.Own.NodeStartups().List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err):
		return errors.New("the API does not know NodeStartups; teach it with: everynode controller --print-crds | " +
			"kubectl apply -f -")
	case apierrors.IsForbidden(err):
		return lacks
	case err != nil:
		return fmt.Errorf("list NodeStartups: %w", err)
	}
	err = a.API.Discovery().RESTClient().Get().AbsPath(Definition).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err):
		return errOwn
	case apierrors.IsForbidden(err):
		return lacks
	case err != nil:
		return fmt.Errorf("read the definition of RolloutPolicies: %w", err)
	}
	review, err := a.API.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Resource: "nodes", Verb: "patch",
			}},
		}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("find out whether Nodes may be patched: %w", err)
	case !review.Status.Allowed:
		return lacks
	}
	return nil
}

// Writer changes Nodes for NodeStartups.
type Writer struct{ API kubernetes.Interface }

// SetGate implements nodestartup.GateWriter.
func (w Writer) SetGate(ctx context.Context, n *corev1.Node, _, gate *corev1.Taint, without []string) error {
	raw, err := joining.Regate(n, gate, without)
	if err != nil {
		return err
	}
	return w.Patch(ctx, n.Name, raw)
}

// WriteDue implements a part of nodestartup.Marker.
func (w Writer) WriteDue(ctx context.Context, n *corev1.Node, due plan.Due) error {
	raw, err := joining.Write(n, due)
	if err != nil {
		return err
	}
	return w.Patch(ctx, n.Name, raw)
}

// Patch patches a Node. That it is another by now is a conflict.
func (w Writer) Patch(ctx context.Context, name string, raw []byte) error {
	_, err := w.API.CoreV1().Nodes().Patch(ctx, name, types.JSONPatchType, raw, metav1.PatchOptions{
		FieldManager: FieldManager})
	if apierrors.IsInvalid(err) {
		return apierrors.NewConflict(corev1.Resource("nodes"), name, err)
	}
	return err
}
