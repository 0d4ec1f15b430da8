// Package mounts reads what the pods of simulated nodes have of ConfigMaps and Secrets, as an agent would for their
// volumes.
package mounts

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/change/content"
)

// Reader reads objects of a namespace. The errors are the API's own, or wrap them.
type Reader struct {
	ConfigMap func(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret is nil where Secrets are not read: they hold nothing then.
	Secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Shown is what a pod has. The zero value has read nothing.
type Shown struct {
	read bool
	of   podworker.Content
	data []map[string]string
}

// Content says what the volumes were pointed at, for the pod's status.
func (s *Shown) Content() podworker.Content { return s.of }

// Data is what the objects hold, as far as that was read.
func (s *Shown) Data() []map[string]string { return s.data }

// Read reads what the pod's containers see: once when it begins, if asked, and whenever its volumes are pointed at
// copies. An object that is not there has nothing in it; if the pod was pointed at it, its status says so and it is
// read again.
func (s *Shown) Read(ctx context.Context, pod *corev1.Pod, asked bool, r Reader) error {
	is, to, err := content.Shown(pod)
	if err != nil {
		return fmt.Errorf("find out what the volumes of pod %s/%s show: %w", pod.Namespace, pod.Name, err)
	}
	if !asked && to == nil {
		return nil
	}
	key := ""
	if to != nil {
		key = to.Key()
	}
	if s.read && s.of.Key == key && s.of.Err == nil {
		return nil
	}
	now := Shown{read: true, of: podworker.Content{Key: key}}
	for _, ref := range content.Refs(&is.Spec) {
		data, err := r.data(ctx, pod.Namespace, ref)
		switch {
		case err == nil:
			now.data = append(now.data, data)
		case !apierrors.IsNotFound(err):
			return err
		case to.Has(ref.Kind, ref.Name):
			now.of.Err = err
		}
	}
	*s = now
	return nil
}

func (r Reader) data(ctx context.Context, namespace string, ref content.Ref) (map[string]string, error) {
	if ref.Kind == content.ConfigMap {
		m, err := r.ConfigMap(ctx, namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		return m.Data, nil
	}
	if r.Secret == nil {
		return nil, nil
	}
	secret, err := r.Secret(ctx, namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	for k, v := range secret.Data {
		data[k] = string(v)
	}
	return data, nil
}
