package builtinkinds

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
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
