package client

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/plan"
	"github.com/everynode/everynode/internal/change/survey"
)

// holdings are ConfigMaps and Secrets, each read once.
type holdings struct {
	in map[string]*survey.Holdings // by namespace
	// applied is what "kubectl apply" keeps in each of what it applied last.
	applied map[*content.Object]string
}

func newHoldings() holdings {
	return holdings{map[string]*survey.Holdings{}, map[*content.Object]string{}}
}

// of is what is known of a namespace.
func (h holdings) of(namespace string) *survey.Holdings {
	if h.in[namespace] == nil {
		h.in[namespace] = &survey.Holdings{
			Objects: map[content.Ref]*content.Object{}, Unread: map[content.Ref]string{},
		}
	}
	return h.in[namespace]
}

// hold reads an object, unless it was read before.
func (l *lists) hold(ctx context.Context, all holdings, namespace string, ref content.Ref) error {
	h := all.of(namespace)
	if _, looked := h.Objects[ref]; looked || h.Unread[ref] != "" {
		return nil
	}
	o, applied, err := l.object(ctx, h, namespace, ref)
	switch {
	case apierrors.IsForbidden(err):
		h.Unread[ref] = err.Error()
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("read %s: %w", ref, err)
	default:
		h.Objects[ref], all.applied[o] = o, applied
	}
	return nil
}

// object reads one object, and what was applied to it last; nil with an error. Of the Secret with the key of a
// namespace its key is kept.
func (l *lists) object(
	ctx context.Context, h *survey.Holdings, namespace string, ref content.Ref,
) (o *content.Object, applied string, err error) {
	if ref.Kind == content.ConfigMap {
		have, err := l.client.CoreV1().ConfigMaps(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return nil, "", err
		}
		return content.OfConfigMap(have), have.Annotations[corev1.LastAppliedConfigAnnotation], nil
	}
	have, err := l.client.CoreV1().Secrets(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	if ref.Name == content.KeyName {
		h.Key = content.KeyOf(have)
	}
	return content.OfSecret(have), have.Annotations[corev1.LastAppliedConfigAnnotation], nil
}

// stored finds what ConfigMaps and Secrets hold that are to change, and has them hold that in all; unread says which
// may not be read, or would be refused.
func (l *lists) stored(
	ctx context.Context, all holdings, wanted []plan.Change,
) (changes []plan.Change, unread []string, err error) {
	for _, c := range wanted {
		if c.Namespace == "" {
			c.Namespace = l.namespace
		}
		h := all.of(c.Namespace)
		if err := l.hold(ctx, all, c.Namespace, c.New.Ref); err != nil {
			return nil, nil, err
		}
		if why := h.Unread[c.New.Ref]; why != "" {
			c.Unread = true
			unread = append(unread, fmt.Sprintf("%s may not be read, so nobody knows what changes in it: %s", c.New.Ref,
				why))
		}
		c.Old = h.Objects[c.New.Ref]
		c.New, err = plan.Applied(c.Old, c.New, all.applied[c.Old])
		if err != nil {
			return nil, nil, err
		}
		if why := c.Refused(); why != "" {
			unread = append(unread, why)
			continue
		}
		if !c.Unread {
			h.Objects[c.New.Ref] = c.New
		}
		changes = append(changes, c)
	}
	return changes, unread, nil
}
