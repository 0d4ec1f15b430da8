package variantfit

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
)

// fixed is a storage that holds a list.
type fixed struct {
	rest.Lister
	list runtime.Object
}

func (f fixed) NewList() runtime.Object { return f.list.DeepCopyObject() }

func (f fixed) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return f.list, nil
}

// warnings writes down what it is told.
type warnings []string

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func dsv(name, size, patch, container string) *v1alpha1.DaemonSetVariant {
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	v.Spec.DaemonSets = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "logs"}}
	if size != "" {
		v.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"size": size}}
	}
	if patch != "" {
		v.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
	}
	if container != "" {
		v.Spec.Resources = map[string]v1alpha1.VariantResources{container: {Requests: map[corev1.ResourceName]string{"cpu": "1"}}}
	}
	return v
}

// What makes an invalid template of a DaemonSet that is there is refused; what is in conflict, or has no container, is
// warned of. What a write leaves as it was is not looked at again.
func TestVariantsAreComparedWithDaemonSets(t *testing.T) {
	logs := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs", Labels: map[string]string{"app": "logs"}}}
	logs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	defaults.SetTemplate(&logs.Spec.Template)
	other := dsv("other", "xl", "", "c")
	p := New(&Stored{DaemonSets: fixed{list: &appsv1.DaemonSetList{Items: []appsv1.DaemonSet{logs}}},
		Variants: fixed{list: &v1alpha1.DaemonSetVariantList{Items: []v1alpha1.DaemonSetVariant{*other}}}})
	bad := `{"spec":{"containers":[{"name":"d"}]}}`
	elsewhere := dsv("v", "s", bad, "")
	elsewhere.Spec.DaemonSets.MatchLabels["app"] = "none"
	urgent := dsv("v", "xl", "", "c")
	urgent.Spec.Priority = 1
	for name, c := range map[string]struct {
		v, old        *v1alpha1.DaemonSetVariant
		subresource   string
		refuses, says string
	}{
		"a container without an image": {dsv("v", "s", bad, ""), nil, "", "spec.patch: Invalid value: with the template of DaemonSet logs: template.spec.containers[0].image: Required value", ""},
		"no value of the field":        {dsv("v", "s", `{"spec":{"dnsPolicy":"Sometimes"}}`, ""), nil, "", `template.spec.dnsPolicy: Unsupported value: "Sometimes"`, ""},
		"a good patch":                 {dsv("v", "s", `{"spec":{"containers":[{"name":"c","env":[{"name":"A"}]}]}}`, "c"), nil, "", "", ""},
		"of no DaemonSet":              {elsewhere, nil, "", "", ""},
		"a container that is not there": {dsv("v", "s", "", "d"), nil, "", "",
			"DaemonSet logs keeps the pods that it has: resources.d.requests.cpu: the template has no container d"},
		"the same nodes": {dsv("v", "xl", "", "c"), nil, "", "",
			"DaemonSetVariant other has the same priority, 0, and chooses the same nodes for DaemonSet logs: these keep the pods that they have"},
		"other nodes":      {dsv("v", "l", "", "c"), nil, "", "", ""},
		"another priority": {urgent, nil, "", "", ""},
		"itself":           {dsv("other", "xl", "", "c"), dsv("other", "xl", "", ""), "", "", ""},
		"as it was":        {dsv("v", "s", bad, ""), dsv("v", "s", bad, ""), "", "", ""},
		"its status":       {dsv("v", "s", bad, ""), dsv("v", "s", "", ""), "status", "", ""},
	} {
		var old runtime.Object
		operation := admission.Create
		if c.old != nil {
			old, operation = c.old, admission.Update
		}
		a := admission.NewAttributesRecord(c.v, old, v1alpha1.GroupVersion.WithKind("DaemonSetVariant"), "default", c.v.Name,
			v1alpha1.GroupVersion.WithResource("daemonsetvariants"), c.subresource, operation, nil, false, nil)
		told := warnings{}
		err := p.Validate(warning.WithWarningRecorder(t.Context(), &told), a, nil)
		if (err != nil) != (c.refuses != "") || err != nil && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.refuses)) {
			t.Errorf("%s: %v, want %q", name, err, c.refuses)
		}
		if got := strings.Join(told, "\n"); got != c.says {
			t.Errorf("%s: it warns %q, want %q", name, got, c.says)
		}
	}
}
