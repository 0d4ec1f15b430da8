// Package nodestartup closes a node in the write that creates it, and in that by which its machine reports that it has
// started again. A Node that a NodeStartup chooses gets the taint of nodes that start, so that no scheduler ever sees
// it without. Nobody but admission puts that taint on a node, and
// nobody but the controller changes it. People take it away who have the verb open on the NodeStartup.
package nodestartup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/stored"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Stored is where NodeStartups are stored. It is filled once the storages are there.
type Stored struct{ Startups rest.Lister }

type plugin struct {
	*admission.Handler
	account    string
	stored     *Stored
	authorizer authorizer.UnconditionalAuthorizer
	clock      clock.PassiveClock
}

var (
	_ admission.MutationInterface   = &plugin{}
	_ admission.ValidationInterface = &plugin{}
)

// New makes the plugin; account is the name of the user that changes the taint and takes it away, and decider answers
// for the verb open.
func New(account string, have *Stored, decider authorizer.UnconditionalAuthorizer,
	c clock.PassiveClock) admission.Interface {
	return &plugin{
		Handler: admission.NewHandler(admission.Create, admission.Update), account: account, stored: have,
		authorizer: decider, clock: c,
	}
}

// Admit implements admission.MutationInterface: it closes a new node, and one whose machine has started again.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch {
	case isReport(a):
		return p.closeAgain(ctx, a)
	case !concerns(a), a.GetOperation() != admission.Create:
		return nil
	}
	node, want, err := p.want(ctx, a)
	if err != nil {
		return err
	}
	if have := nodestartup.TaintOf(node.Spec.Taints); have != nil && !same(have, want) {
		return refused(a)
	}
	if want != nil {
		node.Spec.Taints = nodestartup.With(node.Spec.Taints, want)
	}
	return nil
}

// closeAgain closes a node whose machine has started again, at the first group. One that no NodeStartup chooses any
// more stays as it is.
func (p *plugin) closeAgain(ctx context.Context, a admission.Attributes) error {
	now, ok := a.GetObject().(*corev1.Node)
	old, okOld := a.GetOldObject().(*corev1.Node)
	if !ok || !okOld {
		return unexpected(a.GetObject())
	}
	if !nodestartup.Restarted(old, now) {
		return nil
	}
	node, want, err := p.want(ctx, a)
	if err != nil {
		return err
	}
	if want == nil {
		node.Spec.Taints = old.Spec.Taints
		return nil
	}
	node.Spec.Taints = nodestartup.With(old.Spec.Taints, want)
	node.Annotations = maps.Clone(node.Annotations)
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[nodestartup.ClosedAnnotation] = want.TimeAdded.UTC().Format(time.RFC3339)
	return nil
}

// Validate implements admission.ValidationInterface. What webhooks and policies did since is a part of the write.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !concerns(a) {
		return nil
	}
	if a.GetOperation() == admission.Create {
		node, want, err := p.want(ctx, a)
		if err != nil {
			return err
		}
		if gates(node.Spec.Taints) > 1 || !same(nodestartup.TaintOf(node.Spec.Taints), want) {
			return admission.NewForbidden(a, fmt.Errorf("the node is to be created with %s, and has %s",
				describe(want), describe(nodestartup.TaintOf(node.Spec.Taints))))
		}
		return nil
	}
	node, ok := a.GetObject().(*corev1.Node)
	old, okOld := a.GetOldObject().(*corev1.Node)
	if !ok || !okOld {
		return unexpected(a.GetObject())
	}
	is, was := nodestartup.TaintOf(node.Spec.Taints), nodestartup.TaintOf(old.Spec.Taints)
	changed := !same(is, was) || gates(node.Spec.Taints) != gates(old.Spec.Taints) || !sameTime(is, was)
	if !changed || a.GetUserInfo().GetName() == p.account {
		return nil
	}
	if gates(node.Spec.Taints) > 0 {
		return refused(a)
	}
	return p.mayOpen(ctx, a, was)
}

// mayOpen asks whether the user may open nodes that follow the NodeStartup which the gate names.
func (p *plugin) mayOpen(ctx context.Context, a admission.Attributes, gate *corev1.Taint) error {
	place, _ := nodestartup.PlaceOf(gate.Value)
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "open", Name: place.Startup, ResourceRequest: true,
		APIGroup: v1alpha1.GroupVersion.Group, APIVersion: "*", Resource: "nodestartups",
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return admission.NewForbidden(a, fmt.Errorf("ask for the right to open NodeStartup %s: %w", place.Startup, err))
	}
	return refused(a)
}

// want returns the node of a request, and the taint that it is to be created with; nil for none. The NodeStartups are
// read as they are now, not from a cache: one that was written a moment ago at another server counts.
func (p *plugin) want(ctx context.Context, a admission.Attributes) (*corev1.Node, *corev1.Taint, error) {
	node, ok := a.GetObject().(*corev1.Node)
	if !ok {
		return nil, nil, unexpected(a.GetObject())
	}
	all, err := stored.List[*v1alpha1.NodeStartup](ctx, p.stored.Startups, "")
	if err != nil {
		return nil, nil, apierrors.NewInternalError(fmt.Errorf("read NodeStartups: %w", err))
	}
	matching := nodestartup.NewSet(all).Matching(node.Labels)
	if len(matching) == 0 {
		return node, nil, nil
	}
	first := nodestartup.Place{Startup: matching[0].Name, Group: 1}
	return node, nodestartup.Gate(first, matching[0].Spec.Gate, p.clock.Now()), nil
}

// isReport reports whether a request writes a Node's status.
func isReport(a admission.Attributes) bool {
	return a.GetResource().GroupResource() == corev1.Resource("nodes") && a.GetSubresource() == "status" &&
		a.GetOperation() == admission.Update
}

// concerns reports whether a request writes a Node. What writes its status changes no taint but by Admit.
func concerns(a admission.Attributes) bool {
	return a.GetResource().GroupResource() == corev1.Resource("nodes") && a.GetSubresource() == ""
}

// same reports whether both are the same taint, whenever it was added.
func same(a, b *corev1.Taint) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}

// sameTime reports whether both were added at the same time, by which timeouts go.
func sameTime(a, b *corev1.Taint) bool { return a == nil || b == nil || a.TimeAdded.Equal(b.TimeAdded) }

// gates is how many taints of nodes that start there are.
func gates(taints []corev1.Taint) int { return len(taints) - len(nodestartup.With(taints, nil)) }

func describe(t *corev1.Taint) string {
	if t == nil {
		return "no taint " + nodestartup.TaintKey
	}
	return "the taint " + t.ToString()
}

func refused(a admission.Attributes) error {
	return admission.NewForbidden(a, errors.New("the taint "+nodestartup.TaintKey+
		" is put on a node when it is created or its machine starts again, "+
		"and the node startup controller alone changes it. "+
		"To open a node, take it away with the right to open nodestartups; "+
		"to open all, change or delete the NodeStartup that the taint names"))
}

func unexpected(obj any) error {
	return apierrors.NewBadRequest(fmt.Sprintf("expected a Node but got a %T", obj))
}
