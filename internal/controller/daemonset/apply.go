package daemonset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/controller/daemonset/strange"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// take takes in what has become of an object.
func (o *owner) take(kind string, c change) {
	if o.own.strange.Look(o.log, c.obj, c.deleted) && o.cfg.Speaker != nil {
		o.doubt(c.obj.(client.Object))
	}
	if !o.tellVariants(kind, c) {
		o.apply(kind, c)
	}
}

// apply takes in what is of use to more than variants.
func (o *owner) apply(kind string, c change) {
	switch obj := c.obj.(type) {
	case *appsv1.DaemonSet:
		if o.cfg.Guest {
			obj = admit.AsWritten(obj)
		}
		if c.deleted {
			o.forget(obj)
		}
		if o.cfg.Rollouts != nil {
			// First: the row must not act before it knows what to follow.
			o.contents.Tell(contents.DaemonSet{Object: obj, Gone: c.deleted})
			o.rollouts.Step(rollouts.DaemonSet{Object: obj, Gone: c.deleted})
		}
		o.book.Step(belongings.DaemonSet{Object: obj, Gone: c.deleted})
	case *appsv1.ControllerRevision:
		o.book.Step(belongings.Revision{Object: obj, Gone: c.deleted, Added: c.added})
	case *corev1.Node:
		if c.deleted {
			o.startups.Step(fact.NodeGone(obj.Name))
		} else {
			o.startups.Step(fact.OfNode(obj))
			o.matrix.Step(fact.HealthOf(obj))
		}
	case *v1alpha1.RolloutPolicy:
		o.rollouts.Step(rollouts.Policy{Object: obj, Gone: c.deleted})
	case *v1alpha1.DaemonSetRollout:
		owner := types.UID(obj.Labels[rollouts.OwnerLabel])
		o.contents.Tell(contents.Stored{Rollout: obj, Owner: owner, Gone: c.deleted})
		o.rollouts.Step(rollouts.Rollout{Object: obj, Gone: c.deleted})
	case *v1alpha1.NodeStartup:
		o.startups.Tell(obj, c.deleted)
	case *corev1.Pod:
		o.applyPod(obj, c.deleted)
	case *corev1.ConfigMap, *corev1.Secret:
		o.contents.Tell(contents.Object{Object: obj.(metav1.Object), Gone: c.deleted})
	default:
		o.log.Error(nil, "Informer delivers an unexpected type", "kind", kind)
	}
}

func (o *owner) applyPod(p *corev1.Pod, gone bool) {
	if fetchpod.Is(p) {
		o.fetches.Tell(p, gone)
	} else {
		o.book.Step(belongings.Pod{Object: p, Gone: gone})
	}
}

// tellVariants takes in what variants go by. It returns true for what is of no other use.
func (o *owner) tellVariants(kind string, c change) bool {
	switch obj := c.obj.(type) {
	case *v1alpha1.DaemonSetVariant:
		o.variants.TellVariant(obj, c.deleted)
		return true
	case *appsv1.DaemonSet:
		o.variants.TellDaemonSet(obj, c.deleted)
	case *corev1.Node:
		if kind == kindNodeSize {
			o.variants.TellNode(obj, c.deleted)
			return true
		}
	case *appsv1.ControllerRevision:
		if variants.IsStored(obj) {
			o.variants.TellStored(obj, c.deleted)
			return true
		}
	}
	return false
}

// doubt has a worker write into an object's conditions that nobody follows it.
func (o *owner) doubt(object client.Object) {
	o.lanes.rows.Submit(func(ctx context.Context) {
		err := strange.Say(ctx, o.cfg.Speaker, object)
		if err != nil {
			o.metrics.WritesFailed.Inc()
			klog.FromContext(ctx).Error(err, "Cannot say in its conditions that an object is not followed", "object",
				klog.KObj(object))
		}
	})
}
