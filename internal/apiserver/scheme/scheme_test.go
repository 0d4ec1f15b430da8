package scheme_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/internal/apiserver/registry"
	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// TestFieldSelectors: kinds with fields of their own and kinds without refuse others in different words.
func TestFieldSelectors(t *testing.T) {
	types := scheme.New(registry.Kinds())
	for _, c := range []struct {
		kind             schema.GroupVersionKind
		label, want, err string
	}{
		{kind: corev1.SchemeGroupVersion.WithKind("Pod"), label: "spec.nodeName", want: "spec.nodeName"},
		{kind: corev1.SchemeGroupVersion.WithKind("Pod"), label: "spec.host", want: "spec.nodeName"},
		{kind: corev1.SchemeGroupVersion.WithKind("Pod"), label: "spec.x", err: `field label not supported: spec.x`},
		{kind: eventsv1.SchemeGroupVersion.WithKind("Event"), label: "regarding.kind", want: "involvedObject.kind"},
		{kind: eventsv1.SchemeGroupVersion.WithKind("Event"), label: "x", err: `field label not supported: x`},
		{kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), label: "metadata.name", want: "metadata.name"},
		{kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), label: "spec.x",
			err: `"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`},
	} {
		got, value, err := types.ConvertFieldLabel(c.kind, c.label, "v")
		if c.err == "" && (err != nil || got != c.want || value != "v") {
			t.Errorf("%s %s: got %s=%s, %v; want %s=v", c.kind.Kind, c.label, got, value, err, c.want)
		}
		if c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s %s: got error %v, want %s", c.kind.Kind, c.label, err, c.err)
		}
	}
}
