package doctor

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/everynode/everynode/internal/beside/gates"
	"github.com/everynode/everynode/internal/change/pinning"
)

// pods looks for those that wait for something of ours.
func (l *looker) pods(ctx context.Context) error {
	return errors.Join(l.held(ctx), l.gated(ctx))
}

// gated looks for pods behind the gate of those that are to ask a registry: none of them has a node yet.
func (l *looker) gated(ctx context.Context) error {
	list, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", "").String(),
		ResourceVersion: cached.ResourceVersion,
	})
	if err != nil {
		return err
	}
	for _, p := range pointers(list.Items) {
		if pinning.IsGated(&p.Spec) {
			l.seen.Gated = append(l.seen.Gated, p)
		}
	}
	return nil
}

// gatesOfOthers looks for what the controller has said about pods that somebody else puts there.
func (l *looker) gatesOfOthers(ctx context.Context) error {
	list, err := l.client.CoreV1().Events("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("reason", gates.OfOthers).String(),
	})
	if err != nil {
		return err
	}
	l.seen.GatesOfOthers = pointers(list.Items)
	return nil
}
