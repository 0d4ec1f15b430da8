package builtinkinds

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
)

// warnings writes down what it is told.
type warnings []string

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func TestDefinitionsOfOwnKindsAreWarnedOf(t *testing.T) {
	p := New([]schema.GroupVersion{{Group: "everynode.io", Version: "v1alpha1"}})
	ask := func(group, version string, served, deleted bool, resource, subresource string) string {
		d := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "x." + group}}
		d.Spec.Group, d.Spec.Versions = group, []apiextensions.CustomResourceDefinitionVersion{{Name: version, Served: served}}
		if deleted {
			d.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		told := warnings{}
		r := apiextensions.SchemeGroupVersion.WithResource(resource)
		a := admission.NewAttributesRecord(d, nil, schema.GroupVersionKind{}, "", d.Name, r, subresource, admission.Create, nil, false, nil)
		if err := p.Validate(warning.WithWarningRecorder(t.Context(), &told), a, nil); err != nil {
			t.Errorf("%s is refused: %v", d.Name, err)
		}
		return fmt.Sprint([]string(told))
	}
	const crds = "customresourcedefinitions"
	if got := ask("everynode.io", "v1alpha1", true, false, crds, ""); got != "[spec.versions[0]: everynode.io/v1alpha1 is served by the server itself; this definition has no effect on it]" {
		t.Errorf("a definition of our own kind: %s", got)
	}
	for name, got := range map[string]string{
		"another version": ask("everynode.io", "v2", true, false, crds, ""), "another group": ask("example.com", "v1alpha1", true, false, crds, ""),
		"a version that is not served": ask("everynode.io", "v1alpha1", false, false, crds, ""), "one that is being deleted": ask("everynode.io", "v1alpha1", true, true, crds, ""),
		"its status": ask("everynode.io", "v1alpha1", true, false, crds, "status"), "another resource": ask("everynode.io", "v1alpha1", true, false, "others", ""),
	} {
		if got != "[]" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestOwnGroupsAreNotHandedOver(t *testing.T) {
	p := New([]schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "metrics.k8s.io", Version: "v1beta1"}}, "metrics.k8s.io")
	service := func(group, version string, elsewhere bool) *apiregistration.APIService {
		s := &apiregistration.APIService{Spec: apiregistration.APIServiceSpec{Group: group, Version: version}}
		if elsewhere {
			s.Spec.Service = &apiregistration.ServiceReference{Namespace: "default", Name: "evil"}
		}
		return s
	}
	gone := service("apps", "v1", true)
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for name, c := range map[string]struct {
		now, before *apiregistration.APIService
		subresource string
		refused     bool
	}{
		"the core group":             {service("", "v1", true), nil, "", true},
		"apps":                       {service("apps", "v1", true), nil, "", true},
		"another version of apps":    {service("apps", "v9", true), nil, "", true},
		"a change to another server": {service("apps", "v1", true), service("apps", "v1", false), "", true},
		"our own":                    {service("apps", "v1", false), nil, "", false},
		"what is offered":            {service("metrics.k8s.io", "v1beta1", true), nil, "", false},
		"another group":              {service("example.com", "v1", true), nil, "", false},
		"one that is there":          {service("apps", "v1", true), service("apps", "v1", true), "", false},
		"one that is being deleted":  {gone, service("apps", "v1", true), "", false},
		"the status":                 {service("apps", "v1", true), service("apps", "v1", false), "status", false},
	} {
		operation, old := admission.Create, runtime.Object(nil)
		if c.before != nil {
			operation, old = admission.Update, c.before
		}
		r := apiregistration.SchemeGroupVersion.WithResource("apiservices")
		err := p.Validate(t.Context(), admission.NewAttributesRecord(c.now, old, schema.GroupVersionKind{}, "", c.now.Name, r, c.subresource, operation, nil, false, nil), nil)
		if got := err != nil; got != c.refused {
			t.Errorf("%s: %v, want refused: %v", name, err, c.refused)
		}
	}
}
