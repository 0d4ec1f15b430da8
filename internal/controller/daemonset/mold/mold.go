// Package mold makes the pods of DaemonSets: of a revision's template what all its pods have in common, of its node's
// variant what this one has, and the pod for an action.
package mold

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

// templateGenerationLabel is the label of a pod that repeats the DaemonSet's
// deprecated template generation. Nothing here reads it back.
const templateGenerationLabel = "pod-template-generation"

// Mold is what the pods of one generation of a DaemonSet have in common, so
// that a thousand pods cost one copy of the template each and no more.
type Mold struct {
	generation int64
	content    string // its ID; "" where it is no part of the revision
	images     images
	starts     nodestartup.Turn
	meta       metav1.ObjectMeta
	spec       corev1.PodSpec
}

// Spec is what its pods have as their spec. Nobody changes it.
func (m *Mold) Spec() *corev1.PodSpec { return &m.spec }

// images are the digests of a template's images; first tells that a pod is to ask the registry for them.
type images struct {
	pinned []v1alpha1.PinnedImage
	first  bool
}

func (i *images) same(o *images) bool {
	return i.first == o.first && slices.Equal(i.pinned, o.pinned)
}

// fillImages has the mold, which is nobody else's, name digests.
func (m *Mold) fillImages(of images) {
	m.images = of
	if of.first || len(of.pinned) > 0 {
		pinning.Fill(&m.spec, of.pinned, of.first)
	}
}

// startIn has the mold, which is nobody else's, tolerate the taint of nodes that start, and say when it starts, if a
// NodeStartup lists the DaemonSet.
func (m *Mold) startIn(turn nodestartup.Turn) {
	m.starts = turn
	if turn.Group == 0 {
		return
	}
	turn.Annotate(&m.meta)
	t := nodestartup.Toleration()
	if !slices.ContainsFunc(m.spec.Tolerations, func(o corev1.Toleration) bool { return o.MatchToleration(&t) }) {
		m.spec.Tolerations = append(m.spec.Tolerations, t)
	}
}

// startingIn is the mold for a node on which the daemon starts in another turn; the mold itself stays as it is.
func (m *Mold) startingIn(turn nodestartup.Turn) *Mold {
	if m.starts == turn {
		return m
	}
	out := *m
	out.meta.Annotations, out.starts = maps.Clone(m.meta.Annotations), turn
	turn.Annotate(&out.meta)
	return &out
}

// New is the mold of the DaemonSet's present template.
func New(ds *appsv1.DaemonSet) *Mold {
	m := from(ds, ds.Spec.Template.DeepCopy())
	m.countGeneration(ds)
	return m
}

// countGeneration has pods of the present template repeat the DaemonSet's deprecated template generation.
func (m *Mold) countGeneration(ds *appsv1.DaemonSet) {
	if g, err := strconv.ParseInt(ds.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64); err == nil {
		m.meta.Labels[templateGenerationLabel] = strconv.FormatInt(g, 10)
	}
}

// from makes a mold of a template, which it keeps.
func from(ds *appsv1.DaemonSet, t *corev1.PodTemplateSpec) *Mold {
	m := &Mold{
		generation: ds.Generation,
		meta: metav1.ObjectMeta{
			Namespace:       ds.Namespace,
			GenerateName:    podtemplate.NamePrefix(ds.Name),
			Labels:          t.Labels,
			Annotations:     variant.Disowned(t.Annotations),
			Finalizers:      t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, belongings.Kind)},
		},
		spec: t.Spec,
	}
	if m.meta.Labels == nil {
		m.meta.Labels = map[string]string{}
	}
	m.spec.Tolerations = placement.Tolerations(&m.spec)
	return m
}

// Pod returns the pod for an action. It shares what no writer changes with the
// mold: the API client only encodes it.
func (m *Mold) Pod(a *action.CreatePod) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: m.meta, Spec: m.spec}
	p.Name = a.PodName
	p.Labels = maps.Clone(m.meta.Labels)
	p.Labels[appsv1.ControllerRevisionHashLabelKey] = content.TemplateOf(a.Revision)
	if content.VariantsOf(a.Revision) != "" {
		p.Labels[content.RevisionLabel] = a.Revision
	}
	if a.Before != "" {
		p.Annotations = maps.Clone(m.meta.Annotations)
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, fact.Replaced, fact.ReplacedText(a.Before, a.PodName))
	}
	p.Spec.Affinity = placement.PinToNode(m.spec.Affinity, a.Node)
	return p
}
