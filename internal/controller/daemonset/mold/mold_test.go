package mold

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func TestPodOfANode(t *testing.T) {
	ds := testDaemonSet("logs")
	ds.UID, ds.Labels = "uid", map[string]string{"of": "the-daemonset"}
	template := &ds.Spec.Template
	template.Annotations, template.Finalizers = map[string]string{"note": "n"}, []string{"example.com/held"}
	template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
	before := ds.DeepCopy()
	p := New(ds).Pod(&action.CreatePod{Node: "n1", Revision: "hash", PodName: "logs-1"})

	want := metav1.ObjectMeta{
		Namespace: "default", Name: "logs-1", GenerateName: "logs-",
		Labels: map[string]string{"app": "logs", appsv1.ControllerRevisionHashLabelKey: "hash",
			"pod-template-generation": "1"},
		Annotations: map[string]string{"note": "n"}, Finalizers: []string{"example.com/held"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs", UID: "uid",
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
	}
	if !reflect.DeepEqual(p.ObjectMeta, want) {
		t.Errorf("metadata is\n%+v, want\n%+v", p.ObjectMeta, want)
	}
	if p.Spec.NodeName != "" || p.Spec.NodeSelector["disk"] != "ssd" || p.Spec.Affinity.PodAntiAffinity == nil {
		t.Errorf("node %q, selector %v, affinity %+v", p.Spec.NodeName, p.Spec.NodeSelector, p.Spec.Affinity)
	}
	terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || terms[0].MatchFields[0].Values[0] != "n1" {
		t.Errorf("required terms are %+v, want the node's name alone", terms)
	}
	if len(p.Spec.Tolerations) != 6 {
		t.Errorf("tolerations are %+v, want the six of every daemon pod", p.Spec.Tolerations)
	}
	if !reflect.DeepEqual(ds, before) {
		t.Error("the DaemonSet itself was changed")
	}
}

// A pod that comes in its turn says what it replaced, and only it: the others of its mold,
// and one that has the annotation from a template or from another pod, say nothing.
func TestPodSaysWhatItReplaced(t *testing.T) {
	ds := testDaemonSet("logs")
	for _, annotations := range []map[string]string{nil, {"note": "n"}, {fact.Replaced: "unavailable logs-2"}} {
		ds.Spec.Template.Annotations = annotations
		mold := New(ds)
		for _, before := range []standing.Before{standing.WasAvailable, standing.WasNotAvailable} {
			p := mold.Pod(&action.CreatePod{Node: "n1", PodName: "logs-1", Before: before})
			if got := fact.OfPod(p, "").Before; got != before || p.Annotations["note"] != annotations["note"] {
				t.Errorf("%v, %s: it says %q, and its annotations are %v", annotations, before, got, p.Annotations)
			}
			p.Name = "logs-2"
			if fact.OfPod(p, "").Before != "" {
				t.Errorf("%v: copied to another pod it says %q", annotations, before)
			}
		}
		p := mold.Pod(&action.CreatePod{Node: "n1", PodName: "logs-1"})
		if got := fact.OfPod(p, "").Before; got != "" || !reflect.DeepEqual(p.Annotations, annotations) {
			t.Errorf("one that replaced nothing says %q, and its annotations are %v", got, p.Annotations)
		}
	}
}

// A pod of a listed DaemonSet says when it starts, one of another DaemonSet what its template says.
func TestPodSaysWhenItStarts(t *testing.T) {
	ds := testDaemonSet("logs")
	ds.Spec.Template.Annotations = map[string]string{nodestartup.TimeoutAnnotation: "1h"}
	for turn, want := range map[nodestartup.Turn]map[string]string{
		{}:         {nodestartup.TimeoutAnnotation: "1h"},
		{Group: 2}: {nodestartup.GroupAnnotation: "2"},
		{Group: 3, OpensAfter: time.Minute}: {nodestartup.GroupAnnotation: "3",
			nodestartup.TimeoutAnnotation: "1m0s"},
	} {
		m := New(ds)
		m.startIn(turn)
		p := m.Pod(&action.CreatePod{Node: "n1", PodName: "logs-1"})
		tolerates := slices.Contains(p.Spec.Tolerations, nodestartup.Toleration())
		if !maps.Equal(p.Annotations, want) || tolerates != (turn.Group > 0) {
			t.Errorf("at turn %+v a pod says %v and tolerates the taint: %t", turn, p.Annotations, tolerates)
		}
		// And on a node that has another order.
		if another := (nodestartup.Turn{Group: 7}); turn.Group > 0 {
			other := m.startingIn(another).Pod(&action.CreatePod{Node: "n2", PodName: "logs-2"})
			again := m.Pod(&action.CreatePod{Node: "n1", PodName: "logs-1"})
			if len(other.Annotations) != 1 || other.Annotations[nodestartup.GroupAnnotation] != "7" ||
				!maps.Equal(again.Annotations, want) {
				t.Errorf("at turn %+v a pod says %v, and one at turn %+v then %v", another, other.Annotations, turn,
					again.Annotations)
			}
		}
	}
}

func TestPodWithoutATemplateGeneration(t *testing.T) {
	ds := testDaemonSet("logs")
	for _, annotation := range []string{"", "abc"} {
		ds.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: annotation}
		p := New(ds).Pod(&action.CreatePod{Node: "n1", Revision: "hash"})
		if _, ok := p.Labels["pod-template-generation"]; ok {
			t.Errorf("annotation %q: labels are %v", annotation, p.Labels)
		}
	}
}

func TestPrefixOfNames(t *testing.T) {
	for name, want := range map[string]string{"logs": "logs-", strings.Repeat("a", 252): strings.Repeat("a", 252)} {
		ds := testDaemonSet("x")
		ds.Name = name
		if got := New(ds).meta.GenerateName; got != want {
			t.Errorf("%d characters: names begin with %q, want %q", len(name), got, want)
		}
	}
}

// A node that fetches pinned images is asked for what the pod will name: their digests, or while these are not known
// the tags, and what these name by then.
func TestWhatIsFetchedOfPinnedImages(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	pinned := []v1alpha1.PinnedImage{
		{Image: "r.example/agent:2", Digest: digest}, {Image: "r.example/unknown:1"},
		{Image: "r.example/rules:live", Digest: digest},
	}
	for name, c := range map[string]struct {
		images images
		want   []fetch.Image
	}{
		"as written": {images{}, []fetch.Image{{Image: "r.example/rules:live"}, {Image: "r.example/unknown:1"},
			{Image: "r.example/agent:2"}}},
		"nobody knows the digests": {images{first: true}, []fetch.Image{
			{Image: "r.example/rules:live", Policy: corev1.PullAlways},
			{Image: "r.example/unknown:1", Policy: corev1.PullAlways},
			{Image: "r.example/agent:2", Policy: corev1.PullAlways}}},
		"one has a digest": {images{pinned: pinned}, []fetch.Image{
			{Image: "r.example/rules@" + digest}, {Image: "r.example/unknown:1"}, {Image: "r.example/agent@" + digest}}},
	} {
		ds := testDaemonSet("logs")
		spec := &ds.Spec.Template.Spec
		spec.InitContainers = []corev1.Container{{Name: "init", Image: "r.example/unknown:1"}}
		spec.Containers = []corev1.Container{{Name: "agent", Image: "r.example/agent:2"}}
		spec.Volumes = []corev1.Volume{{Name: "rules", VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: "r.example/rules:live"}}}}
		m := New(ds)
		m.fillImages(c.images)
		if spec.Volumes[0].Image.Reference != "r.example/rules:live" {
			t.Errorf("%s: the DaemonSet itself was changed: %+v", name, spec.Volumes[0].Image)
		}
		if got, more := fetch.Images(&m.spec); !reflect.DeepEqual(got, c.want) || more != 0 {
			t.Errorf("%s: %v and %d more are asked for, want %v", name, got, more, c.want)
		}
		p := m.Pod(&action.CreatePod{Node: "n1", Revision: "hash", PodName: "logs-1"})
		if got, _ := fetch.Images(&p.Spec); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: the pod needs %v, and its node was asked for %v", name, got, c.want)
		}
	}
}

func testDaemonSet(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1,
			Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "1"}},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}}}},
	}
}
