// Package fieldmanagers bounds what is said about names of field managers that nobody
// may have. The library refuses a name of more than 128 bytes, and each character of it
// that cannot be printed, in an error of its own with the whole name in it: with a name
// of some 100 kB that is gigabytes of text, and half a minute of a core.
package fieldmanagers

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apiserver/pkg/admission"
)

// mostShown is how much of a name the library gets to see: too much to be taken.
var mostShown = validation.FieldManagerMaxLength + 1

type plugin struct{ *admission.Handler }

var _ admission.MutationInterface = plugin{}

// New makes the plugin.
func New() admission.MutationInterface {
	return plugin{admission.NewHandler(admission.Create, admission.Update)}
}

// Admit implements admission.MutationInterface. What it shortens is refused afterwards, so
// it changes nothing that is ever stored.
func (plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	object, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil //nolint:nilerr // It has no metadata, and so no managers.
	}
	managed := object.GetManagedFields()
	changed := false
	for i := range managed {
		if short := Shown(managed[i].Manager); short != managed[i].Manager {
			managed[i].Manager, changed = short, true
		}
	}
	if changed {
		object.SetManagedFields(managed)
	}
	return nil
}

// Shown is a name that is refused like this one, and is not much longer than names may be.
func Shown(manager string) string {
	if len(manager) <= mostShown {
		return manager
	}
	return manager[:mostShown]
}
