// Package storing writes what the book of variants wants written.
package storing

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// Writer writes ControllerRevisions. Errors are those of the API.
type Writer interface {
	CreateRevision(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error)
	GetRevision(ctx context.Context, namespace, name string) (*appsv1.ControllerRevision, error)
	// DeleteRevision deletes that version and no later one.
	DeleteRevision(ctx context.Context, r *appsv1.ControllerRevision) error
}

// StatusWriter writes what is so of variants.
type StatusWriter interface {
	UpdateVariantStatus(ctx context.Context, v *v1alpha1.DaemonSetVariant) (*v1alpha1.DaemonSetVariant, error)
}

// Store stores variants, and deletes those that nobody needs.
func Store(ctx context.Context, to Writer, j *variants.Job) (r variants.Result) {
	r.Job = j
	for _, next := range j.Make {
		made, err := to.CreateRevision(ctx, next)
		if apierrors.IsAlreadyExists(err) {
			// An earlier try did it, or a DaemonSet that had the name before. What it holds is looked at.
			made, err = to.GetRevision(ctx, next.Namespace, next.Name)
		}
		if err != nil {
			r.Why = fmt.Sprintf("its variants cannot be stored: %v", err)
			return r
		}
		r.Made = append(r.Made, made)
	}
	for _, old := range j.Delete {
		err := to.DeleteRevision(ctx, old)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			r.Deleted = append(r.Deleted, old)
		case !apierrors.IsConflict(err): // one that changed meanwhile comes again
			r.Why = fmt.Sprintf("variants that nobody needs cannot be deleted: %v", err)
			return r
		}
	}
	return r
}

// Tell writes the status of a variant; nil if that is to be tried again with what comes from the API.
func Tell(
	ctx context.Context, to StatusWriter, v *v1alpha1.DaemonSetVariant,
) *v1alpha1.DaemonSetVariant {
	written, err := to.UpdateVariantStatus(ctx, v)
	switch {
	case err == nil:
		return written
	case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		klog.FromContext(ctx).V(2).Info("Cannot write the status of a variant", "variant", klog.KObj(v), "err", err)
	}
	return nil
}

// NewGauge returns the metric of what variants reserve.
func NewGauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "everynode_variant_requested",
		Help: "What the pods that a variant makes of a DaemonSet request on all its nodes together, in cores and bytes."},
		[]string{"namespace", "daemonset", "variant", "resource"})
}

// Show has the metric say what is reserved now.
func Show(g *prometheus.GaugeVec, all []variants.Reserved) {
	g.Reset()
	for _, r := range all {
		for name, amount := range r.Requested {
			g.WithLabelValues(r.Namespace, r.DaemonSet, r.Variant, string(name)).Set(amount)
		}
	}
}
