package daemonset

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/pins"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/nodestartup"
	"github.com/everynode/everynode/internal/podtemplate"
)

// templateGenerationLabel is the label of a pod that repeats the DaemonSet's
// deprecated template generation. Nothing here reads it back.
const templateGenerationLabel = "pod-template-generation"

// podMold is what the pods of one generation of a DaemonSet have in common, so
// that a thousand pods cost one copy of the template each and no more.
type podMold struct {
	generation int64
	content    string // its ID; "" where it is no part of the revision
	images     moldImages
	starts     int // in which group of a NodeStartup; 0: none lists the DaemonSet
	meta       metav1.ObjectMeta
	spec       corev1.PodSpec
}

// moldImages are the digests of a template's images; first tells that a pod is to ask the registry for them.
type moldImages struct {
	pinned []v1alpha1.PinnedImage
	first  bool
}

func (i *moldImages) same(o *moldImages) bool {
	return i.first == o.first && slices.Equal(i.pinned, o.pinned)
}

// fillImages has the mold, which is nobody else's, name digests.
func (m *podMold) fillImages(images moldImages) {
	m.images = images
	if images.first || len(images.pinned) > 0 {
		pins.Fill(&m.spec, images.pinned, images.first)
	}
}

// startIn has the mold, which is nobody else's, tolerate the taint of nodes that start, and say in which group it
// starts; 0 is for none.
func (m *podMold) startIn(group int) {
	m.starts = group
	if group == 0 {
		return
	}
	metav1.SetMetaDataAnnotation(&m.meta, nodestartup.GroupAnnotation, strconv.Itoa(group))
	t := nodestartup.Toleration()
	if !slices.ContainsFunc(m.spec.Tolerations, func(o corev1.Toleration) bool { return o.MatchToleration(&t) }) {
		m.spec.Tolerations = append(m.spec.Tolerations, t)
	}
}

func newPodMold(ds *appsv1.DaemonSet) *podMold {
	m := moldFrom(ds, ds.Spec.Template.DeepCopy())
	if g, err := strconv.ParseInt(ds.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64); err == nil {
		m.meta.Labels[templateGenerationLabel] = strconv.FormatInt(g, 10)
	}
	return m
}

// moldFrom makes a mold of a template, which it keeps.
func moldFrom(ds *appsv1.DaemonSet, t *corev1.PodTemplateSpec) *podMold {
	m := &podMold{
		generation: ds.Generation,
		meta: metav1.ObjectMeta{
			Namespace:       ds.Namespace,
			GenerateName:    podtemplate.NamePrefix(ds.Name),
			Labels:          t.Labels,
			Annotations:     t.Annotations,
			Finalizers:      t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, controllerKind)},
		},
		spec: t.Spec,
	}
	if m.meta.Labels == nil {
		m.meta.Labels = map[string]string{}
	}
	m.spec.Tolerations = placement.Tolerations(&m.spec)
	return m
}

// pod returns the pod for an action. It shares what no writer changes with the
// mold: the API client only encodes it.
func (m *podMold) pod(a *action.CreatePod) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: m.meta, Spec: m.spec}
	p.Name = a.PodName
	p.Labels = maps.Clone(m.meta.Labels)
	p.Labels[appsv1.ControllerRevisionHashLabelKey] = content.TemplateOf(a.Revision)
	if a.Before != "" {
		p.Annotations = maps.Clone(m.meta.Annotations)
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, fact.Replaced, fact.ReplacedText(a.Before, a.PodName))
	}
	p.Spec.Affinity = placement.PinToNode(m.spec.Affinity, a.Node)
	return p
}
