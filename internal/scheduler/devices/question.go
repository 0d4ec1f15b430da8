package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/everynode/everynode/internal/fit"
)

// What a node is reported with that cannot have a pod because of its claims.
const (
	TextElsewhere = "resourceclaim not available on the node"
	TextNone      = "cannot allocate all claims"
	TextTooLong   = "choosing devices takes too long"
	TextPause     = "choosing devices takes long for pods of this namespace, and is done again after a pause"
)

// patience is how long the choice of devices for one pod may take, over all nodes. Selectors and constraints can be
// written that would take for ever, and all other pods wait meanwhile.
const patience = 2 * time.Second

// Attempt begins an attempt to place a pod, in which nothing else is told to the book until the pod has its node:
// within it no node is asked twice. If devices would have to be chosen, and the pod's namespace has taken so much of
// everybody's time that it is not to have more yet, it returns until when; zero otherwise.
func (b *Book) Attempt(pod *corev1.Pod) (pausing time.Time) {
	b.last = nil
	if len(pod.Spec.ResourceClaims) == 0 {
		return time.Time{}
	}
	b.last = b.ask(pod)
	if b.last.problem != "" || len(b.last.lacks) == 0 {
		return time.Time{}
	}
	return b.pace.until(pod.Namespace, b.clock.Now())
}

// Ask prepares a question about a pod's claims; nil if it has none.
func (b *Book) Ask(pod *corev1.Pod) fit.DeviceQuestion {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	return b.ask(pod)
}

func (b *Book) ask(pod *corev1.Pod) *question {
	if b.last != nil && b.last.pod == pod {
		return b.last
	}
	q := &question{book: b, pod: pod, found: map[string]answer{}}
	q.problem = q.look()
	return q
}

// answer is what was found on a node, or why nothing was.
type answer struct {
	devices []resourcev1.AllocationResult
	text    string
}

type question struct {
	book    *Book
	pod     *corev1.Pod
	problem string
	has     []*resourcev1.ResourceClaim // with their devices
	lacks   []*resourcev1.ResourceClaim
	spent   time.Duration
	found   map[string]answer // by node
}

// look sorts the pod's claims, and says why the pod fits nowhere as they are.
func (q *question) look() string {
	if !q.book.known {
		return "the devices of the cluster are not known yet"
	}
	for i := range q.pod.Spec.ResourceClaims {
		entry := &q.pod.Spec.ResourceClaims[i]
		name, own, err := resourceclaim.Name(q.pod, entry)
		if errors.Is(err, resourceclaim.ErrClaimNotFound) {
			return fmt.Sprintf("waiting for the resource claim of %q to be made", entry.Name)
		}
		if err != nil {
			return err.Error()
		}
		if name == nil {
			continue
		}
		c := q.book.claim(q.pod.Namespace + "/" + *name)
		if text := unusable(q.pod, *name, own, c); text != "" {
			return text
		}
		if p := q.book.promised[c.UID]; p != nil && !p.gives() {
			// A pod that has the claim as it was would be bound without a further write, and be without devices.
			return fmt.Sprintf("resourceclaim %q gives its devices back", *name)
		} else if p != nil {
			// What it becomes is written over the version that was seen: a second writer would undo the first.
			return fmt.Sprintf("resourceclaim %q is in the process of being allocated", *name)
		}
		if c.Status.Allocation != nil {
			if !slices.Contains(q.has, c) {
				q.has = append(q.has, c)
			}
		} else if text := q.book.lacksClass(c); text != "" {
			return text
		} else if !slices.Contains(q.lacks, c) {
			q.lacks = append(q.lacks, c)
		}
	}
	return ""
}

func unusable(pod *corev1.Pod, name string, own bool, c *resourcev1.ResourceClaim) string {
	switch {
	case c == nil:
		return fmt.Sprintf("resourceclaim %q not found", name)
	case own && !metav1.IsControlledBy(c, pod):
		return fmt.Sprintf("resourceclaim %q was not created for the pod", name)
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("resourceclaim %q is being deleted", name)
	case len(c.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize &&
		!resourceclaim.IsReservedForPod(pod, c, false):
		return fmt.Sprintf("resourceclaim %q is used by as many pods as can share one", name)
	}
	return ""
}

// lacksClass says which class a claim names that is not there. Of alternatives each must be there.
func (b *Book) lacksClass(c *resourcev1.ResourceClaim) string {
	for _, r := range c.Spec.Devices.Requests {
		var names []string
		if r.Exactly != nil {
			names = append(names, r.Exactly.DeviceClassName)
		}
		for _, sub := range r.FirstAvailable {
			names = append(names, sub.DeviceClassName)
		}
		for _, name := range names {
			if b.classes[name] == nil {
				return fmt.Sprintf("request %s: device class %s does not exist", r.Name, name)
			}
		}
	}
	return ""
}

// Problem implements fit.DeviceQuestion.
func (q *question) Problem() string { return q.problem }

// Missing implements fit.DeviceQuestion.
func (q *question) Missing(node *corev1.Node) string {
	if q.problem != "" {
		return q.problem
	}
	for _, c := range q.has {
		selector := c.Status.Allocation.NodeSelector
		if selector == nil {
			continue
		}
		parsed, err := nodeaffinity.NewNodeSelector(selector)
		if err != nil || !parsed.Match(node) {
			return TextElsewhere
		}
	}
	if len(q.lacks) == 0 {
		return ""
	}
	known, asked := q.found[node.Name]
	if !asked {
		known.devices, known.text = q.choose(node)
		q.found[node.Name] = known
	}
	return known.text
}

// choose finds devices on a node for the claims that have none.
func (q *question) choose(node *corev1.Node) ([]resourcev1.AllocationResult, string) {
	if q.spent >= q.book.patience {
		return nil, TextTooLong
	}
	begin := q.book.clock.Now()
	defer func() {
		end := q.book.clock.Now()
		q.spent += end.Sub(begin)
		q.book.pace.spent(q.pod.Namespace, end.Sub(begin), end)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), q.book.patience-q.spent)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, features, q.book.state(), q.book.classes,
		q.book.near(node.Name), q.book.cache)
	if err != nil {
		return nil, err.Error()
	}
	results, err := allocator.Allocate(ctx, node, q.lacks)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, TextTooLong
	case err != nil:
		return nil, err.Error()
	case len(results) != len(q.lacks):
		return nil, TextNone
	}
	return results, ""
}

// Gift is a claim, and what is to be written over it because a pod gets a node.
type Gift struct{ Was, Next *resourcev1.ResourceClaim }

// Gifts are the claims of a pod as they are to become if it gets the node, on which they fit. Those that are so already
// are left out.
func (b *Book) Gifts(pod *corev1.Pod, node *corev1.Node) ([]Gift, error) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil, nil
	}
	q := b.ask(pod)
	if text := q.Missing(node); text != "" {
		return nil, errors.New(text)
	}
	user := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
	var gifts []Gift
	for i, c := range append(slices.Clone(q.lacks), q.has...) {
		if resourceclaim.IsReservedForPod(pod, c, false) {
			continue
		}
		next := c.DeepCopy()
		if i < len(q.lacks) {
			next.Status.Allocation = q.found[node.Name].devices[i].DeepCopy()
			if !slices.Contains(next.Finalizers, resourcev1.Finalizer) {
				next.Finalizers = append(next.Finalizers, resourcev1.Finalizer)
			}
		}
		next.Status.ReservedFor = append(next.Status.ReservedFor, user)
		gifts = append(gifts, Gift{c, next})
	}
	return gifts, nil
}

// Stuck are the claims that nobody but a pod without a node has. They are given back, so that they can be met
// elsewhere.
func (b *Book) Stuck(pod *corev1.Pod) (out []Gift) {
	for name := range resourceclaim.PodClaims(pod) {
		c := b.claims[pod.Namespace+"/"+name]
		if c == nil || b.promised[c.UID] != nil || c.Status.Allocation == nil || len(c.Status.ReservedFor) != 1 ||
			!resourceclaim.IsReservedForPod(pod, c, false) ||
			!slices.Contains(c.Finalizers, resourcev1.Finalizer) {
			continue
		}
		next := c.DeepCopy()
		next.Status.Allocation, next.Status.ReservedFor = nil, nil
		out = append(out, Gift{c, next})
	}
	return out
}

// Keys are the pod's claims, as the queue of waiting pods calls them.
func Keys(pod *corev1.Pod) (out []string) {
	for name := range resourceclaim.PodClaims(pod) {
		out = append(out, Key(pod.Namespace, name))
	}
	return out
}

// Key is a ResourceClaim among the claims that pods wait for.
func Key(namespace, name string) string { return "resourceclaim/" + namespace + "/" + name }

// Node is the only node on which a claim's devices are; "" if there are several, or none.
func Node(c *resourcev1.ResourceClaim) string {
	if c == nil || c.Status.Allocation == nil || c.Status.Allocation.NodeSelector == nil ||
		len(c.Status.Allocation.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := c.Status.Allocation.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchFields) != 1 || term.MatchFields[0].Key != metav1.ObjectNameField ||
		len(term.MatchFields[0].Values) != 1 {
		return ""
	}
	return term.MatchFields[0].Values[0]
}
