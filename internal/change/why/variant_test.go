package why

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/change/variant"
)

// A node says by which variant its pod was made, that it has what it is to have where its pod would be the same, and
// what keeps it from another.
func TestVariantOfANode(t *testing.T) {
	w := surveytest.New(t)
	ds, hashes := w.DaemonSet("logs", "example.com/logs:1")
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: "large", UID: "large"}}
	v.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"size": "xl"}}
	v.Spec.Patch = &runtime.RawExtension{Raw: []byte(`{"spec": {"terminationGracePeriodSeconds": 7}}`)}
	w.Objects.Variants = []*v1alpha1.DaemonSetVariant{v}
	set, err := variant.NewSet([]variant.Variant{variant.Of(v)})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "xl", "old"} {
		label := surveytest.Label("size", map[string]string{"xl": "xl", "old": "xl"}[name])
		w.Node(name, label)
		w.Pod(ds, name, hashes[0])
		p := w.Objects.Pods[len(w.Objects.Pods)-1]
		if name != "xl" {
			continue
		}
		n := w.Objects.Nodes[len(w.Objects.Nodes)-1]
		of := variant.OfNode(n)
		o := set.On(&ds.Spec.Template).Of(&of)
		text, err := o.Text(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, variant.Annotation, text)
		metav1.SetMetaDataLabel(&p.ObjectMeta, content.RevisionLabel, content.WithVariants(hashes[0], set.ID))
	}
	says := func(node, verdict string, words ...string) {
		t.Helper()
		r, err := Node(survey.New(w.Objects), node, nil)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r.Write(&out, Style{Now: surveytest.Now})
		text := strings.Join(strings.Fields(out.String()), " ")
		for _, want := range append(words, "on "+node+": "+verdict) {
			if !strings.Contains(text, want) {
				t.Errorf("of %s it says\n%s\nwant %q", node, text, want)
			}
		}
	}
	says("plain", "Current")
	says("xl", "Current", "made by variant large")
	says("old", "Waiting")
	p := w.Objects.Pods[1]
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, "vpaUpdates", "container 0: memory request")
	says("xl", "Current", "made by variant large", "a VerticalPodAutoscaler gives its pod amounts: the resources of a variant are not")
	delete(p.Annotations, "vpaUpdates")
	other := v.DeepCopy()
	other.Name, other.UID = "other", "other"
	w.Objects.Variants = append(w.Objects.Variants, other)
	says("old", "Current", "variants large, other have the same priority")
	w.Objects.Variants = []*v1alpha1.DaemonSetVariant{v}
	v.Spec.Resources = map[string]v1alpha1.VariantResources{
		"nobody": {Requests: map[corev1.ResourceName]string{"cpu": "1"}}}
	says("old", "Current", "it keeps the pod that it has: variant large: resources.nobody.requests.cpu", "no container nobody")
}
