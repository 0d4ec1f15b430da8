package env

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Field reads the field of pod that fieldPath names: metadata.name, .namespace, .uid, .labels, .annotations, or one
// label or annotation as metadata.labels['key']. Whole maps come as sorted lines of key="value". A missing key is an
// empty text.
//
// Fields of spec and status belong to containers only; they are read by Build.
func Field(pod *corev1.Pod, fieldPath string) (string, error) {
	if path, key, ok := splitSubscript(fieldPath); ok {
		switch path {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", fieldPath)
	}
	switch fieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", fieldPath)
}

// splitSubscript splits metadata.labels['key'] into its path and its key.
func splitSubscript(fieldPath string) (path, key string, ok bool) {
	path, rest, ok := strings.Cut(fieldPath, "['")
	if !ok {
		return "", "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return path, key, ok
}

func formatMap(m map[string]string) string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var out strings.Builder
	for i, key := range keys {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString(key + "=" + strconv.Quote(m[key]))
	}
	return out.String()
}

// Resource reads a request or limit of a container in units of the selector's divisor, rounded up.
//
// The container is the one the selector names, or defaultContainer when it names none. A limit of cpu, memory or
// ephemeral storage that the container doesn't set is what the node can allocate; another missing quantity is 0.
func Resource(
	pod *corev1.Pod, selector *corev1.ResourceFieldSelector, defaultContainer string, allocatable corev1.ResourceList,
) (string, error) {
	name := selector.ContainerName
	if name == "" {
		name = defaultContainer
	}
	container := findContainer(pod, name)
	if container == nil {
		return "", fmt.Errorf("container %s not found", name)
	}
	kind, resourceName, ok := strings.Cut(selector.Resource, ".")
	if !ok {
		return "", fmt.Errorf("unsupported container resource : %v", selector.Resource)
	}
	var quantity resource.Quantity
	switch kind {
	case "limits":
		quantity = limit(container, corev1.ResourceName(resourceName), allocatable)
	case "requests":
		quantity = container.Resources.Requests[corev1.ResourceName(resourceName)]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", selector.Resource)
	}
	return divide(corev1.ResourceName(resourceName), quantity, selector.Divisor)
}

func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}

func limit(container *corev1.Container, name corev1.ResourceName, allocatable corev1.ResourceList) resource.Quantity {
	if quantity, ok := container.Resources.Limits[name]; ok && !quantity.IsZero() {
		return quantity
	}
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return allocatable[name]
	}
	return resource.Quantity{}
}

// divide gives quantity/divisor rounded up, counting cpu in thousandths and everything else in whole units.
func divide(name corev1.ResourceName, quantity, divisor resource.Quantity) (string, error) {
	switch {
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage:
	case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
	default:
		return "", fmt.Errorf("unsupported container resource : %v", name)
	}
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	amount, unit := quantity.Value(), divisor.Value()
	if name == corev1.ResourceCPU {
		amount, unit = quantity.MilliValue(), divisor.MilliValue()
	}
	if unit <= 0 {
		return "", fmt.Errorf("divisor %s is not positive", divisor.String())
	}
	result := amount / unit
	if amount%unit > 0 {
		result++
	}
	return strconv.FormatInt(result, 10), nil
}
