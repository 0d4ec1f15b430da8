package env

import (
	"context"
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Var is one environment variable of a container.
type Var struct {
	// Name is the variable's name; it is not empty and has no "=".
	Name string
	// Value is its value, possibly empty.
	Value string
}

// Objects gives the API objects that variables refer to. What it returns is shared and not changed.
// A missing object is an error for which apierrors.IsNotFound is true.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services lists at least the services of namespace and the API server's, default/kubernetes.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
	// NodeAllocatable is what pods on this node can use in all; it stands in for limits that a container doesn't set.
	NodeAllocatable() corev1.ResourceList
	// File reads a file of a volume of the pod, MaxFile bytes at most. One that is missing is fs.ErrNotExist.
	File(pod *corev1.Pod, volume, path string) ([]byte, error)
}

// Build computes the environment of container, sorted by name.
//
// podIPs and hostIPs are the addresses for status.podIP(s) and status.hostIP(s), the primary one first; both may be
// empty. The error says which object or key is missing, in the kubelet's words.
func Build(
	ctx context.Context, pod *corev1.Pod, container *corev1.Container, podIPs, hostIPs []string, objects Objects,
) ([]Var, error) {
	services, err := objects.Services(ctx, pod.Namespace)
	if err != nil {
		return nil, fmt.Errorf("services have not yet been read at least once, cannot construct envvars: %w", err)
	}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	b := builder{
		pod: pod, container: container, podIPs: podIPs, hostIPs: hostIPs, objects: objects,
		values: map[string]string{}, services: serviceVars(services, pod.Namespace, links),
	}
	for i := range container.EnvFrom {
		if err := b.addSource(ctx, &container.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range container.Env {
		if err := b.addVar(ctx, &container.Env[i]); err != nil {
			return nil, err
		}
	}
	for name, value := range b.services {
		if _, ok := b.values[name]; !ok {
			b.values[name] = value
		}
	}
	vars := make([]Var, 0, len(b.values))
	for name, value := range b.values {
		vars = append(vars, Var{Name: name, Value: value})
	}
	sort.Slice(vars, func(i, j int) bool { return vars[i].Name < vars[j].Name })
	return vars, nil
}

// builder holds the arguments of Build and the variables found so far.
type builder struct {
	pod             *corev1.Pod
	container       *corev1.Container
	podIPs, hostIPs []string
	objects         Objects
	values          map[string]string // from envFrom and env
	size            int               // of the values, in bytes
	services        map[string]string // from services; values win
}

func (b *builder) lookup(name string) (string, bool) {
	if value, ok := b.values[name]; ok {
		return value, true
	}
	value, ok := b.services[name]
	return value, ok
}

func (b *builder) addSource(ctx context.Context, source *corev1.EnvFromSource) error {
	switch {
	case source.ConfigMapRef != nil:
		ref := source.ConfigMapRef
		configMap, err := b.objects.ConfigMap(ctx, b.pod.Namespace, ref.Name)
		if err != nil {
			return ignoreMissing(err, ref.Optional, "configmap", ref.Name)
		}
		for key, value := range configMap.Data {
			b.set(source.Prefix+key, value)
		}
	case source.SecretRef != nil:
		ref := source.SecretRef
		secret, err := b.objects.Secret(ctx, b.pod.Namespace, ref.Name)
		if err != nil {
			return ignoreMissing(err, ref.Optional, "secret", ref.Name)
		}
		for key, value := range secret.Data {
			b.set(source.Prefix+key, string(value))
		}
	}
	return nil
}

// ignoreMissing drops a not-found error about an object that need not exist, and puts others in the kubelet's words,
// which name one object and not, as the API server's, its kind in the plural.
func ignoreMissing(err error, optional *bool, kind, name string) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	if optional != nil && *optional {
		return nil
	}
	return apierrors.NewNotFound(corev1.Resource(kind), name)
}

func (b *builder) addVar(ctx context.Context, v *corev1.EnvVar) error {
	if v.Value != "" || v.ValueFrom == nil {
		value, err := Expand(v.Value, b.lookup)
		if err != nil {
			return fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		b.set(v.Name, value)
		return b.fits()
	}
	value, ok, err := b.valueFrom(ctx, v.ValueFrom)
	if err != nil {
		return err
	}
	if ok {
		b.set(v.Name, value)
	}
	return b.fits()
}

func (b *builder) set(name, value string) {
	b.size += len(value) - len(b.values[name])
	b.values[name] = value
}

// fits says whether a program could be started with what there is already.
func (b *builder) fits() error {
	if b.size > MaxTotal {
		return fmt.Errorf("the environment is larger than %d bytes", MaxTotal)
	}
	return nil
}

// valueFrom reads one source; ok is false when an optional object or key is missing, and the variable stays unset.
func (b *builder) valueFrom(ctx context.Context, source *corev1.EnvVarSource) (value string, ok bool, err error) {
	switch {
	case source.FieldRef != nil:
		value, err = b.field(source.FieldRef.FieldPath)
		return value, err == nil, err
	case source.ResourceFieldRef != nil:
		value, err = Resource(b.pod, source.ResourceFieldRef, b.container.Name, b.objects.NodeAllocatable())
		return value, err == nil, err
	case source.ConfigMapKeyRef != nil:
		return b.configMapKey(ctx, source.ConfigMapKeyRef)
	case source.SecretKeyRef != nil:
		return b.secretKey(ctx, source.SecretKeyRef)
	case source.FileKeyRef != nil:
		return b.fileKey(source.FileKeyRef)
	}
	return "", false, fmt.Errorf("environment variable has a source that this node does not support")
}

func (b *builder) configMapKey(ctx context.Context, ref *corev1.ConfigMapKeySelector) (string, bool, error) {
	configMap, err := b.objects.ConfigMap(ctx, b.pod.Namespace, ref.Name)
	if err != nil {
		return "", false, ignoreMissing(err, ref.Optional, "configmap", ref.Name)
	}
	value, ok := configMap.Data[ref.Key]
	if !ok && (ref.Optional == nil || !*ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, b.pod.Namespace, ref.Name)
	}
	return value, ok, nil
}

func (b *builder) secretKey(ctx context.Context, ref *corev1.SecretKeySelector) (string, bool, error) {
	secret, err := b.objects.Secret(ctx, b.pod.Namespace, ref.Name)
	if err != nil {
		return "", false, ignoreMissing(err, ref.Optional, "secret", ref.Name)
	}
	value, ok := secret.Data[ref.Key]
	if !ok && (ref.Optional == nil || !*ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, b.pod.Namespace, ref.Name)
	}
	return string(value), ok, nil
}

// field reads the fields of spec and status that only containers may ask for, and leaves the others to Field.
func (b *builder) field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return b.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return b.pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		return first(b.podIPs), nil
	case "status.podIPs":
		return strings.Join(b.podIPs, ","), nil
	case "status.hostIP":
		return first(b.hostIPs), nil
	case "status.hostIPs":
		return strings.Join(b.hostIPs, ","), nil
	}
	return Field(b.pod, path)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
