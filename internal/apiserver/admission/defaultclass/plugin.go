// Package defaultclass gives new objects that name no class the one that is marked as the default.
package defaultclass

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/everynode/everynode/internal/objects/class"
)

// Classes reads classes of the type C; a lister of client-go is one.
type Classes[C any] interface {
	List(selector labels.Selector) ([]C, error)
}

// Rules are what is particular of a kind O of objects whose classes are of the type C.
type Rules[O any, C class.Class] struct {
	Resource schema.GroupResource
	// Expected names the kind in errors, with its article; ClassKind that of the classes, in the plural.
	Expected, ClassKind string
	// Named says whether an object names its class, or says that it has none.
	Named func(O) bool
	// Default is the class of objects that name none; nil if there is none.
	Default func([]C) C
	Set     func(O, string)
}

// Plugin is the admission plugin.
type Plugin[O any, C class.Class] struct {
	*admission.Handler
	rules   Rules[O, C]
	classes Classes[C]
}

// New makes the plugin. New objects without a class wait until synced reports that classes can be read.
func New[O any, C class.Class](rules Rules[O, C], classes Classes[C], synced func() bool) *Plugin[O, C] {
	p := &Plugin[O, C]{Handler: admission.NewHandler(admission.Create), rules: rules, classes: classes}
	p.SetReadyFunc(synced)
	return p
}

// Admit implements admission.MutationInterface.
func (p *Plugin[O, C]) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != p.rules.Resource || a.GetSubresource() != "" {
		return nil
	}
	object, ok := a.GetObject().(O)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected %s but got a %T", p.rules.Expected, a.GetObject()))
	}
	if p.rules.Named(object) {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	all, err := p.classes.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("list %s: %w", p.rules.ClassKind, err))
	}
	var none C
	if found := p.rules.Default(all); found != none {
		p.rules.Set(object, found.GetName())
	}
	return nil
}
