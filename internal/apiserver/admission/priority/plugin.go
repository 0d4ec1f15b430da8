// Package priority turns the priority class that a pod names into a number, and
// keeps two classes from being the default.
package priority

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// The class that a static pod's mirror gets, and its value.
const (
	nodeCriticalName  = "system-node-critical"
	nodeCriticalValue = 2_000_001_000
)

// Classes reads priority classes; a lister of client-go is one.
type Classes interface {
	Get(name string) (*schedulingv1.PriorityClass, error)
	List(selector labels.Selector) ([]*schedulingv1.PriorityClass, error)
}

// Plugin is the admission plugin: it changes pods and checks classes.
type Plugin struct {
	*admission.Handler
	classes Classes
}

var (
	_ admission.MutationInterface   = &Plugin{}
	_ admission.ValidationInterface = &Plugin{}
)

// New makes the plugin. Requests wait until synced reports that classes can be read.
func New(classes Classes, synced func() bool) *Plugin {
	p := &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update), classes: classes}
	p.SetReadyFunc(synced)
	return p
}

var (
	podResource   = corev1.Resource("pods")
	classResource = schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}
)

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || a.GetResource().GroupResource() != podResource {
		return nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a Pod but got a %T", a.GetObject()))
	}
	if a.GetOperation() == admission.Update {
		old, ok := a.GetOldObject().(*corev1.Pod)
		if !ok {
			return apierrors.NewBadRequest(fmt.Sprintf("expected a Pod but got a %T", a.GetOldObject()))
		}
		keep(pod, old)
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, fmt.Errorf("not yet ready to handle request"))
	}
	if err := p.assign(pod); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// keep carries over what a client that does not know the fields has left out.
func keep(pod, old *corev1.Pod) {
	if pod.Spec.Priority == nil && old.Spec.Priority != nil {
		pod.Spec.Priority = new(*old.Spec.Priority)
	}
	if pod.Spec.PreemptionPolicy == nil && old.Spec.PreemptionPolicy != nil {
		pod.Spec.PreemptionPolicy = new(*old.Spec.PreemptionPolicy)
	}
}

// assign computes the priority of a new pod. A pod may not bring another number
// than its class gives.
func (p *Plugin) assign(pod *corev1.Pod) error {
	if podfacts.IsMirror(pod) && pod.Spec.PriorityClassName == "" && pod.Spec.Priority != nil &&
		*pod.Spec.Priority == nodeCriticalValue {
		pod.Spec.PriorityClassName = nodeCriticalName
	}
	value, policy := int32(0), corev1.PreemptLowerPriority
	class, err := p.classOf(pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if class != nil {
		pod.Spec.PriorityClassName, value = class.Name, class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if given := pod.Spec.Priority; given != nil && *given != value {
		return fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", *given, value)
	}
	if given := pod.Spec.PreemptionPolicy; given != nil && *given != policy {
		return fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *given, policy)
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = new(value), new(policy)
	return nil
}

// classOf gives the named class, or the default one, which may be none.
func (p *Plugin) classOf(name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		return p.defaultClass()
	}
	class, err := p.classes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("no PriorityClass with name %v was found", name)
	}
	if err != nil {
		return nil, fmt.Errorf("read PriorityClass %s: %w", name, err)
	}
	return class, nil
}

// defaultClass is the lowest one, should a race have made several.
func (p *Plugin) defaultClass() (*schedulingv1.PriorityClass, error) {
	classes, err := p.classes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list PriorityClasses: %w", err)
	}
	var found *schedulingv1.PriorityClass
	for _, class := range classes {
		if class.GlobalDefault && (found == nil || class.Value < found.Value) {
			found = class
		}
	}
	return found, nil
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || a.GetResource().GroupResource() != classResource {
		return nil
	}
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a PriorityClass but got a %T", a.GetObject()))
	}
	if !class.GlobalDefault {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, fmt.Errorf("not yet ready to handle request"))
	}
	existing, err := p.defaultClass()
	if err != nil {
		return fmt.Errorf("find the default PriorityClass: %w", err)
	}
	if existing != nil && (a.GetOperation() == admission.Create || existing.Name != class.Name) {
		return admission.NewForbidden(a,
			fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", existing.Name))
	}
	return nil
}
