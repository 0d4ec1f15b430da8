// Package podtopologylabels tells pods where they run: the labels of a node that name its zone and region are copied
// to the pods that are bound to it, or made for it.
package podtopologylabels

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// copied are the labels, by their keys.
var copied = []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion}

type plugin struct {
	*admission.Handler
	node func(ctx context.Context, name string) (*corev1.Node, error)
}

var _ admission.MutationInterface = plugin{}

// New makes the plugin. node reads a node, and gives a NotFound error for one that is not there.
func New(node func(ctx context.Context, name string) (*corev1.Node, error)) admission.MutationInterface {
	return plugin{admission.NewHandler(admission.Create), node}
}

// Admit implements admission.MutationInterface.
func (p plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("pods") &&
		a.GetResource().GroupResource() != corev1.Resource("bindings") {
		return nil
	}
	switch object := a.GetObject().(type) {
	case *corev1.Binding:
		if object.Target.Kind == "" || object.Target.Kind == "Node" {
			return p.label(ctx, &object.ObjectMeta, object.Target.Name)
		}
	case *corev1.Pod:
		if a.GetSubresource() == "" {
			return p.label(ctx, &object.ObjectMeta, object.Spec.NodeName)
		}
	}
	return nil
}

func (p plugin) label(ctx context.Context, object *metav1.ObjectMeta, nodeName string) error {
	if nodeName == "" {
		return nil
	}
	node, err := p.node(ctx, nodeName)
	if apierrors.IsNotFound(err) {
		return nil // who may bind to nodes that are not there yet always could
	}
	if err != nil {
		return fmt.Errorf("read where node %s is: %w", nodeName, err)
	}
	found := map[string]string{}
	for _, key := range copied {
		if value, ok := node.Labels[key]; ok {
			found[key] = value
		}
	}
	if len(found) == 0 {
		return nil
	}
	labels := map[string]string{}
	maps.Copy(labels, object.Labels)
	maps.Copy(labels, found)
	object.Labels = labels
	return nil
}
