package rolloutpolicy

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
)

// MaxExcluded is how many objects a policy may name that are no content.
const MaxExcluded = 100

// Content says which objects a template names belong to its revision.
type Content struct {
	ConfigMaps, Secrets bool
	// Settle is how long no object may have changed before a change is taken to be whole.
	Settle time.Duration
	// Live has running pods show another content where they can.
	Live    bool
	names   sets.Set[string]
	labeled labels.Selector
}

// Excludes reports whether an object of the name and labels is no content.
func (c *Content) Excludes(name string, labeled map[string]string) bool {
	return c.names.Has(name) || c.labeled != nil && c.labeled.Matches(labels.Set(labeled))
}

// ByLabel reports whether labels say of some objects that they are no content.
func (c *Content) ByLabel() bool { return c.labeled != nil }

// Takes reports whether an object that a template names is content, as far as its kind and name tell.
func (c *Content) Takes(ref content.Ref) bool {
	wanted := c.ConfigMaps
	if ref.Kind == content.Secret {
		wanted = c.Secrets
	}
	return wanted && !ref.IsCluster() && !c.names.Has(ref.Name)
}

// compileContent reads what has its defaults; nil for a policy whose revisions are templates alone.
func compileContent(c *v1alpha1.Content, selector labels.Selector) *Content {
	if c == nil {
		return nil
	}
	out := &Content{
		ConfigMaps: c.ConfigMaps == v1alpha1.ContentReferenced, Secrets: c.Secrets == v1alpha1.ContentReferenced,
		Settle: length(c.Settle), Live: c.Apply == v1alpha1.ContentLive, labeled: selector,
	}
	if !out.ConfigMaps && !out.Secrets {
		return nil
	}
	if c.Exclude != nil {
		out.names = sets.New(c.Exclude.Names...)
	}
	return out
}

func validateContent(c *v1alpha1.Content, at *field.Path) (errs field.ErrorList) {
	if c == nil {
		return nil
	}
	scope := func(s v1alpha1.ContentScope, at *field.Path) {
		switch s {
		case "", v1alpha1.ContentReferenced, v1alpha1.ContentNone:
		default:
			scopes := []v1alpha1.ContentScope{v1alpha1.ContentNone, v1alpha1.ContentReferenced}
			errs = append(errs, field.NotSupported(at, s, scopes))
		}
	}
	scope(c.ConfigMaps, at.Child("configMaps"))
	scope(c.Secrets, at.Child("secrets"))
	switch c.Apply {
	case "", v1alpha1.ContentRestart, v1alpha1.ContentLive:
	default:
		ways := []v1alpha1.ContentApply{v1alpha1.ContentLive, v1alpha1.ContentRestart}
		errs = append(errs, field.NotSupported(at.Child("apply"), c.Apply, ways))
	}
	errs = append(errs, atLeast(c.Settle, 0, at.Child("settle"))...)
	if e := c.Exclude; e != nil {
		errs = append(errs, validateExclusion(e, at.Child("exclude"))...)
	}
	return errs
}

func validateExclusion(e *v1alpha1.ContentExclusion, at *field.Path) (errs field.ErrorList) {
	if len(e.Names) > MaxExcluded {
		return field.ErrorList{field.TooMany(at.Child("names"), len(e.Names), MaxExcluded)}
	}
	names := sets.New[string]()
	for i, name := range e.Names {
		at := at.Child("names").Index(i)
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(at, name, problem))
		}
		if names.Has(name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		names.Insert(name)
	}
	return append(errs, selector(e.Selector, at.Child("selector"))...)
}
