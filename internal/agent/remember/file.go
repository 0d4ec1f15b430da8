package remember

import (
	"encoding/json"
	"iter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Known is what a node knows of Services.
type Known struct {
	// Node is the node itself; nil if that is not known.
	Node           *corev1.Node
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Namespaces     []*corev1.Namespace
}

// line is a line of the file: one of the objects.
type line struct {
	Node          *corev1.Node               `json:"node,omitempty"`
	Service       *corev1.Service            `json:"service,omitempty"`
	EndpointSlice *discoveryv1.EndpointSlice `json:"endpointSlice,omitempty"`
	Namespace     *corev1.Namespace          `json:"namespace,omitempty"`
}

// Read reads the file; nil if there is none. The error says which file is broken, and
// why.
func Read(path string) (*Known, error) {
	known := &Known{}
	there, err := readLines(path, "services", Seal{}, known.add)
	if err != nil || !there {
		return nil, err
	}
	return known, nil
}

func (k *Known) add(raw []byte) (bool, error) {
	var l line
	if err := json.Unmarshal(raw, &l); err != nil {
		return false, err
	}
	switch {
	case l.Node != nil:
		k.Node = l.Node
	case l.Service != nil:
		k.Services = append(k.Services, l.Service)
	case l.EndpointSlice != nil:
		k.EndpointSlices = append(k.EndpointSlices, l.EndpointSlice)
	case l.Namespace != nil:
		k.Namespaces = append(k.Namespaces, l.Namespace)
	default:
		return false, nil
	}
	return true, nil
}

// lines are what the file holds of it.
func (k *Known) lines() iter.Seq[any] {
	return func(yield func(any) bool) {
		if k.Node != nil && !yield(line{Node: k.Node}) {
			return
		}
		for _, svc := range k.Services {
			if !yield(line{Service: svc}) {
				return
			}
		}
		for _, slice := range k.EndpointSlices {
			if !yield(line{EndpointSlice: slice}) {
				return
			}
		}
		for _, namespace := range k.Namespaces {
			if !yield(line{Namespace: namespace}) {
				return
			}
		}
	}
}

// replace puts known where the file is, or leaves what is there.
func replace(path string, known *Known) error {
	return writeLines(path, Seal{}, known.lines())
}
