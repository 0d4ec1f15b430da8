// Package resources counts what pods ask of a node, and says which resource lacks. It is pure.
package resources

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// What a container that requests nothing is taken to use when nodes are compared (never when they are filtered), so
// that many containers without requests still spread over the nodes.
const (
	defaultMilliCPU = 100
	defaultMemory   = 200 << 20
)

// Amounts is an amount of each resource as plain integers: CPU in thousandths, the rest in bytes or pieces.
type Amounts struct {
	MilliCPU         int64
	Memory           int64
	EphemeralStorage int64
	// Scalar holds huge pages and extended resources; nil when there are none.
	Scalar map[corev1.ResourceName]int64
}

// FromList converts an API resource list. The "pods" entry is left out: it is a count, not an amount.
func FromList(list corev1.ResourceList) Amounts {
	var r Amounts
	for name, quantity := range list {
		switch name {
		case corev1.ResourceCPU:
			r.MilliCPU = quantity.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = quantity.Value()
		case corev1.ResourceEphemeralStorage:
			r.EphemeralStorage = quantity.Value()
		case corev1.ResourcePods:
		default:
			r.setScalar(name, quantity.Value())
		}
	}
	return r
}

// Clone returns a copy that shares nothing with r.
func (r Amounts) Clone() Amounts {
	r.Scalar = maps.Clone(r.Scalar)
	return r
}

// Equal reports whether both are the same amounts.
func (r Amounts) Equal(other Amounts) bool {
	return r.MilliCPU == other.MilliCPU && r.Memory == other.Memory && r.EphemeralStorage == other.EphemeralStorage &&
		maps.Equal(r.Scalar, other.Scalar)
}

// Add adds other to r.
func (r *Amounts) Add(other Amounts) {
	r.MilliCPU += other.MilliCPU
	r.Memory += other.Memory
	r.EphemeralStorage += other.EphemeralStorage
	for name, amount := range other.Scalar {
		r.setScalar(name, r.Scalar[name]+amount)
	}
}

// Sub takes other from r. A scalar that reaches zero is dropped, so equal amounts compare equal.
func (r *Amounts) Sub(other Amounts) {
	r.MilliCPU -= other.MilliCPU
	r.Memory -= other.Memory
	r.EphemeralStorage -= other.EphemeralStorage
	for name, amount := range other.Scalar {
		r.setScalar(name, r.Scalar[name]-amount)
	}
}

// Raise makes every amount of r at least that of other.
func (r *Amounts) Raise(other Amounts) {
	r.MilliCPU = max(r.MilliCPU, other.MilliCPU)
	r.Memory = max(r.Memory, other.Memory)
	r.EphemeralStorage = max(r.EphemeralStorage, other.EphemeralStorage)
	for name, amount := range other.Scalar {
		if amount > r.Scalar[name] {
			r.setScalar(name, amount)
		}
	}
}

// Shortage is a resource of which less is left than is wanted.
type Shortage struct {
	Resource                       corev1.ResourceName
	Wanted, Allocatable, Requested int64
}

// Shortages lists the resources of which r wants more than allocatable has beside what is requested already: CPU,
// memory and ephemeral storage first, the others by name.
func (r Amounts) Shortages(allocatable, requested Amounts) (out []Shortage) {
	need := func(name corev1.ResourceName, wanted, has, used int64) {
		if wanted > 0 && wanted > has-used {
			out = append(out, Shortage{Resource: name, Wanted: wanted, Allocatable: has, Requested: used})
		}
	}
	need(corev1.ResourceCPU, r.MilliCPU, allocatable.MilliCPU, requested.MilliCPU)
	need(corev1.ResourceMemory, r.Memory, allocatable.Memory, requested.Memory)
	need(corev1.ResourceEphemeralStorage, r.EphemeralStorage, allocatable.EphemeralStorage, requested.EphemeralStorage)
	if len(r.Scalar) > 0 {
		for _, name := range slices.Sorted(maps.Keys(r.Scalar)) {
			need(name, r.Scalar[name], allocatable.Scalar[name], requested.Scalar[name])
		}
	}
	return out
}

// IsZero reports whether no resource has an amount.
func (r Amounts) IsZero() bool {
	return r.MilliCPU == 0 && r.Memory == 0 && r.EphemeralStorage == 0 && len(r.Scalar) == 0
}

func (r *Amounts) setScalar(name corev1.ResourceName, amount int64) {
	if amount == 0 {
		delete(r.Scalar, name)
		if len(r.Scalar) == 0 {
			r.Scalar = nil
		}
		return
	}
	if r.Scalar == nil {
		r.Scalar = make(map[corev1.ResourceName]int64, 1)
	}
	r.Scalar[name] = amount
}

// OfPod returns what the pod asks of a node: the sum of its containers and sidecars, or the peak while its init
// containers run (each beside the sidecars started before it) if that is more; amounts set for the pod as a whole
// replace the sum; the overhead comes on top. perContainer maps one container's request, for the caller to fill gaps.
func OfPod(spec *corev1.PodSpec, perContainer func(corev1.ResourceList) Amounts) Amounts {
	var total, sidecars, peak Amounts
	for i := range spec.Containers {
		total.Add(perContainer(spec.Containers[i].Resources.Requests))
	}
	for i := range spec.InitContainers {
		request := perContainer(spec.InitContainers[i].Resources.Requests)
		if podfacts.IsSidecar(&spec.InitContainers[i]) {
			total.Add(request)
			sidecars.Add(request)
			continue
		}
		request.Add(sidecars)
		peak.Raise(request)
	}
	total.Raise(peak)
	if spec.Resources != nil {
		total.replace(spec.Resources.Requests)
	}
	if len(spec.Overhead) > 0 {
		total.Add(FromList(spec.Overhead))
	}
	return total
}

// replace sets the amounts that a pod may set as a whole: CPU, memory and huge pages.
func (r *Amounts) replace(list corev1.ResourceList) {
	for name, quantity := range list {
		switch {
		case name == corev1.ResourceCPU:
			r.MilliCPU = quantity.MilliValue()
		case name == corev1.ResourceMemory:
			r.Memory = quantity.Value()
		case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			r.setScalar(name, quantity.Value())
		}
	}
}

// WithDefaults is a container's request with CPU and memory filled in where it names none.
func WithDefaults(list corev1.ResourceList) Amounts {
	r := FromList(list)
	if _, named := list[corev1.ResourceCPU]; !named {
		r.MilliCPU = defaultMilliCPU
	}
	if _, named := list[corev1.ResourceMemory]; !named {
		r.Memory = defaultMemory
	}
	return r
}
