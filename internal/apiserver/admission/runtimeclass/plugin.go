// Package runtimeclass gives pods what their RuntimeClass says: what it costs to run them that way, and which nodes
// can.
package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/everynode/everynode/internal/apiserver/alike"
)

// Known finds classes as they were a moment ago; a lister of client-go does.
type Known interface {
	Get(name string) (*nodev1.RuntimeClass, error)
}

// Live reads classes as they are; a client of client-go does.
type Live interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*nodev1.RuntimeClass, error)
}

// Plugin is the admission plugin: it changes and checks new pods.
type Plugin struct {
	*admission.Handler
	known Known
	live  Live
}

var (
	_ admission.MutationInterface   = &Plugin{}
	_ admission.ValidationInterface = &Plugin{}
)

// New makes the plugin. Pods with a class wait until synced reports that classes can be read.
func New(known Known, live Live, synced func() bool) *Plugin {
	p := &Plugin{Handler: admission.NewHandler(admission.Create), known: known, live: live}
	p.SetReadyFunc(synced)
	return p
}

// newPod is the pod that a request makes, nil if it makes none.
func newPod(a admission.Attributes) (*corev1.Pod, error) {
	if a.GetSubresource() != "" || a.GetResource().GroupResource() != corev1.Resource("pods") {
		return nil, nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Pod but got a %T", a.GetObject()))
	}
	return pod, nil
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, err := newPod(a)
	if err != nil || pod == nil {
		return err
	}
	class, err := p.classOf(ctx, pod, a)
	if err != nil || class == nil {
		return err
	}
	if class.Overhead != nil {
		if pod.Spec.Overhead != nil && !alike.Values(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return admission.NewForbidden(a, errOverhead)
		}
		pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling != nil {
		if err := place(pod, class.Scheduling); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// place narrows the pod's nodes to those that can run it.
func place(pod *corev1.Pod, scheduling *nodev1.Scheduling) error {
	selector := maps.Clone(pod.Spec.NodeSelector)
	if selector == nil && len(scheduling.NodeSelector) > 0 {
		selector = map[string]string{}
	}
	for key, value := range scheduling.NodeSelector {
		if own, ok := selector[key]; ok && own != value {
			return fmt.Errorf("conflict: runtimeClass.Scheduling.NodeSelector[%s] = %s; pod.Spec.NodeSelector[%s] = %s",
				key, value, key, own)
		}
		selector[key] = value
	}
	pod.Spec.NodeSelector = selector
	pod.Spec.Tolerations = merge(pod.Spec.Tolerations, scheduling.Tolerations)
	return nil
}

// merge adds to a pod's tolerations those that it has not.
func merge(own, more []corev1.Toleration) []corev1.Toleration {
	out := own[:len(own):len(own)]
	for _, t := range more {
		known := false
		for i := range out {
			known = known || alike.Values(out[i], t)
		}
		if !known {
			out = append(out, t)
		}
	}
	return out
}

var (
	errOverhead  = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	errUndefined = errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
)

// Validate implements admission.ValidationInterface: what a pod costs is what its class says.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, err := newPod(a)
	if err != nil || pod == nil {
		return err
	}
	class, err := p.classOf(ctx, pod, a)
	switch {
	case err != nil:
		return err
	case class == nil || class.Overhead == nil:
		if len(pod.Spec.Overhead) > 0 {
			return admission.NewForbidden(a, errUndefined)
		}
	case !alike.Values(class.Overhead.PodFixed, pod.Spec.Overhead):
		return admission.NewForbidden(a, errOverhead)
	}
	return nil
}

// classOf finds the class that a pod names, nil if it names none. One that was made a moment ago is found too.
func (p *Plugin) classOf(ctx context.Context, pod *corev1.Pod, a admission.Attributes) (*nodev1.RuntimeClass, error) {
	if pod.Spec.RuntimeClassName == nil {
		return nil, nil
	}
	if !p.WaitForReady() {
		return nil, admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	name := *pod.Spec.RuntimeClassName
	class, err := p.known.Get(name)
	if apierrors.IsNotFound(err) {
		class, err = p.live.Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, admission.NewForbidden(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", name))
	}
	if err != nil {
		return nil, fmt.Errorf("read RuntimeClass %s: %w", name, err)
	}
	return class, nil
}
