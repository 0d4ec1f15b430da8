package insidedoor

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Change changes the object that exists and returns it as stored. change gets a copy of it as it is now, and another
// one if somebody else writes meanwhile; its error ends the call. It is what a patch is for those outside.
func (d *Door) Change(ctx context.Context, t Target, change func(runtime.Object) error) (runtime.Object, error) {
	return d.call(ctx, t, "patch", func(ctx context.Context, w *write) (runtime.Object, error) {
		updater, ok := w.storage.(rest.Updater)
		if !ok {
			return nil, w.unsupported()
		}
		options := &metav1.UpdateOptions{TypeMeta: optionsType("UpdateOptions")}
		info := rest.DefaultUpdatedObjectInfo(nil, func(ctx context.Context, _, old runtime.Object) (runtime.Object, error) {
			if m, err := meta.Accessor(old); err != nil || m.GetUID() == "" {
				return nil, w.missing()
			}
			changed := old.DeepCopyObject()
			if err := change(changed); err != nil {
				return nil, err
			}
			if err := w.carryOver(changed, old); err != nil {
				return nil, err
			}
			d.scheme.Default(changed)
			d.audit.request(ctx, w, changed)
			return changed, d.admit(ctx, w.attributes(changed, old, admission.Update, options))
		})
		validate := rest.AdmissionToValidateObjectUpdateFunc(
			d.admission, w.attributes(nil, nil, admission.Update, options), d.objects,
		)
		out, _, err := updater.Update(ctx, t.Name, info, w.neverCreate, validate, false, options)
		return out, err
	})
}
