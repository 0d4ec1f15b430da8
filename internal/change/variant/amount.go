package variant

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	grainBytes = 16 << 20
	grainMilli = 10
	// maxBytes and maxCores bound what formulas may give: more is a mistake.
	maxBytes = 1 << 60
	maxCores = 1 << 20
)

// Node is what is read of a Node.
type Node struct {
	Name   string
	Labels map[string]string
	Size   Size
}

// Size is how large a node is. It is comparable.
type Size struct{ Allocatable, Capacity Amounts }

// Amounts are cores, bytes and numbers; absent ones are negative.
type Amounts struct{ CPU, Memory, Storage, Pods float64 }

// SizeOf reads how large a node is. A node without any cpu or memory has not found out how much it has: a kubelet that
// cannot ask its machine says zero.
func SizeOf(n *corev1.Node) Size {
	return Size{amountsOf(n.Status.Allocatable), amountsOf(n.Status.Capacity)}
}

// OfNode reads a Node. It shares the labels, which must not change afterwards.
func OfNode(n *corev1.Node) Node { return Node{Name: n.Name, Labels: n.Labels, Size: SizeOf(n)} }

func amountsOf(list corev1.ResourceList) Amounts {
	of := func(name corev1.ResourceName) float64 {
		q, is := list[name]
		if !is || q.IsZero() && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			return -1
		}
		return q.AsApproximateFloat64()
	}
	return Amounts{
		of(corev1.ResourceCPU), of(corev1.ResourceMemory), of(corev1.ResourceEphemeralStorage), of(corev1.ResourcePods),
	}
}

// named are the amounts by the names of resources, without absent ones.
func (a Amounts) named() map[string]float64 {
	out := make(map[string]float64, 4)
	for name, value := range map[corev1.ResourceName]float64{
		corev1.ResourceCPU: a.CPU, corev1.ResourceMemory: a.Memory,
		corev1.ResourceEphemeralStorage: a.Storage, corev1.ResourcePods: a.Pods,
	} {
		if value >= 0 {
			out[string(name)] = value
		}
	}
	return out
}

// Round rounds what a formula gives up: cpu to 10m, bytes to 16Mi.
func Round(name corev1.ResourceName, value float64) (resource.Quantity, error) {
	most, unit := float64(maxBytes), float64(grainBytes)
	if name == corev1.ResourceCPU {
		most, unit = maxCores, grainMilli/1000.0
	}
	switch {
	case math.IsNaN(value):
		return resource.Quantity{}, fmt.Errorf("gives no number")
	case value < 0:
		return resource.Quantity{}, fmt.Errorf("gives %v, which is negative", value)
	case value > most:
		return resource.Quantity{}, fmt.Errorf("gives %v, which is more than any node has", value)
	}
	grains := ceil(value / unit)
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(grains*grainMilli, resource.DecimalSI), nil
	}
	return *resource.NewQuantity(grains*grainBytes, resource.BinarySI), nil
}

// ceil rounds up; what is above a whole number by no more than an error of calculation stays there.
func ceil(x float64) int64 {
	if whole := math.Round(x); math.Abs(x-whole) <= 1e-12*max(1, x) {
		return int64(whole)
	}
	return int64(math.Ceil(x))
}

// closeTo reports whether a computed amount changes by less than a tenth of what it was.
func closeTo(have, want resource.Quantity) bool {
	if have.Cmp(want) == 0 {
		return true
	}
	h, w := have.AsApproximateFloat64(), want.AsApproximateFloat64()
	return math.Abs(w-h)*10 < h
}
