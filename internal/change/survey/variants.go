package survey

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// addVariants finds the variants that the DaemonSet has now, and makes them a part of its revision.
func (s *Set) addVariants() error {
	if s.survey.UnusedVariant(s.DaemonSet) {
		return nil
	}
	all, err := variant.Choosing(slices.Values(s.survey.Variants), s.DaemonSet, variant.Check)
	if err != nil {
		return fmt.Errorf("what pods of DaemonSet %s are to be cannot be told: %w", s.DaemonSet.Name, err)
	}
	s.variants, err = variant.NewSet(all)
	if err != nil {
		return err
	}
	if s.variants != nil {
		s.Revision = content.WithVariants(s.Revision, s.variants.ID)
	}
	whole := []string{s.Revision}
	if s.Rollout != nil {
		whole = append(whole, s.Rollout.Status.StableRevision, s.Rollout.Status.TargetRevision)
	}
	for _, revision := range whole {
		n := s.Numbers[content.TemplateOf(revision)]
		if content.VariantsOf(revision) != "" && n > 0 {
			s.Numbers[revision] = n
		}
	}
	return nil
}

// hasOrHad reports whether the DaemonSet has variants, or its pods or its rollout tell of some.
func (s *Set) hasOrHad() bool {
	tells := s.variants != nil
	if s.Rollout != nil {
		st := &s.Rollout.Status
		tells = tells || content.VariantsOf(st.StableRevision) != "" || content.VariantsOf(st.TargetRevision) != ""
	}
	for _, pods := range s.survey.byOwner[s.DaemonSet.UID] {
		tells = tells || slices.ContainsFunc(pods, variants.IsMarked)
	}
	return tells
}

// vary returns what adds variants before a core: nil for a DaemonSet that has nothing to do with them.
func (s *Set) vary(c *Core) *variants.Book {
	if !s.hasOrHad() {
		return nil
	}
	b := variants.New(c.Matrix)
	all := objects{s, map[types.UID]*corev1.Pod{}}
	for _, pods := range s.survey.byOwner[s.DaemonSet.UID] {
		for _, p := range pods {
			all.pods[p.UID] = p
		}
	}
	b.Objects, b.Guest = all, s.survey.beside
	b.Tick(s.survey.Now)
	for _, n := range s.survey.Nodes {
		b.TellNode(n, false)
	}
	for _, v := range s.survey.Variants {
		b.TellVariant(v, false)
	}
	for _, r := range s.survey.Revisions {
		if variants.IsStored(r) {
			b.TellStored(r, false)
		}
	}
	b.TellDaemonSet(s.DaemonSet, false)
	if c.Follows != nil {
		b.Step(*c.Follows)
	}
	return b
}

// beginVaried adds the row and its pods by the book of variants. What the controller will store counts as stored.
func (s *Set) beginVaried(c *Core, row fact.DaemonSet) {
	for _, pods := range s.survey.byOwner[row.UID] {
		for _, p := range pods {
			c.Step(s.Project(p))
		}
	}
	row.Revision = content.WithVariants(row.Revision, "")
	c.Settle()
	c.Step(row)
	c.Settle()
}

// moldsOf are the present variants on the template of a revision. They are kept: each node asks for them.
func (s *Set) moldsOf(revision string, template *corev1.PodTemplateSpec) *variant.Molds {
	if s.molds[revision] == nil {
		s.molds[revision] = s.variants.On(template)
	}
	return s.molds[revision]
}

// Molds are the pods of the present template by the present variants; nil where there are none.
func (s *Set) Molds() *variant.Molds {
	if s.variants == nil {
		return nil
	}
	return s.moldsOf(s.Revision, s.Template(s.Revision))
}

// chosen are the variants of the survey that choose a DaemonSet, as far as people write them.
func (s *Survey) chosen(ds *appsv1.DaemonSet) map[types.UID]int64 {
	out := map[types.UID]int64{}
	for _, v := range s.Variants {
		if variant.Selects(v, ds) {
			out[v.UID] = v.Generation
		}
	}
	return out
}

// stored are the ControllerRevisions of the namespace that hold variants.
func (s *Survey) stored(namespace string) map[*appsv1.ControllerRevision]bool {
	out := map[*appsv1.ControllerRevision]bool{}
	for _, r := range s.Revisions {
		if r.Namespace == namespace && variants.IsStored(r) {
			out[r] = true
		}
	}
	return out
}

// sameVariants reports whether the DaemonSet has the variants in a later survey that it has here.
func (v *View) sameVariants(s *Survey, ds *appsv1.DaemonSet) bool {
	if !maps.Equal(v.survey.chosen(v.DaemonSet), s.chosen(ds)) {
		return false
	}
	return v.core.Variants == nil || maps.Equal(v.survey.stored(ds.Namespace), s.stored(ds.Namespace))
}

// tellNode has the book of variants know a node that is another one now, or is gone.
func (v *View) tellNode(n *corev1.Node, gone bool) {
	if v.core.Variants != nil {
		v.core.Variants.TellNode(n, gone)
	}
}

// tellPod has the book of variants see a pod as it is now; nil if it is gone.
func (v *View) tellPod(uid types.UID, p *corev1.Pod) {
	if v.core.Variants == nil {
		return
	}
	all, is := v.core.Variants.Objects.(objects)
	switch {
	case !is:
	case p == nil:
		delete(all.pods, uid)
	default:
		all.pods[uid] = p
	}
}

// Choices counts the nodes that have a pod of the DaemonSet by the variant that chooses them, "" for none, and those
// that several of the highest priority choose. A DaemonSet without variants has no choices.
func (v *View) Choices() (nodes map[string]int, tied int) {
	nodes = map[string]int{}
	molds := v.Molds()
	if molds == nil {
		return nodes, 0
	}
	for name := range v.survey.byOwner[v.DaemonSet.UID] {
		n := v.survey.nodes[name]
		if n == nil {
			continue
		}
		of := molds.Rivals(n.Labels)
		switch len(of) {
		case 0:
			nodes[""]++
		case 1:
			nodes[of[0]]++
		default:
			tied++
		}
	}
	return nodes, tied
}

// objects are what was read.
type objects struct {
	*Set
	pods map[types.UID]*corev1.Pod
}

// Pod implements variants.Objects.
func (o objects) Pod(uid types.UID) *corev1.Pod { return o.pods[uid] }

// Template implements variants.Objects.
func (o objects) Template(_ types.UID, hash string) *corev1.PodTemplateSpec {
	return o.Set.Template(hash)
}

// Variant says by which variant the pod of a node was made, and what keeps the node from another; "" for nothing.
func (v *View) Variant(name string) (has, why string) {
	for _, p := range v.Pods(name) {
		mark := variant.MarkOf(&p.ObjectMeta)
		has, why = mark.Words(), ""
		if mark.Variant != "" && variants.IsScaled(p) {
			why = "a VerticalPodAutoscaler gives its pod amounts: the resources of a variant are not followed"
		}
	}
	n := v.survey.nodes[name]
	if v.variants == nil || n == nil {
		return has, why
	}
	of := variant.OfNode(n)
	o := v.Molds().Of(&of)
	switch {
	case o.Err != nil:
		return has, "it keeps the pod that it has: " + o.Err.Error()
	case len(o.Tied) > 0:
		return has, "it keeps the pod that it has: variants " + strings.Join(o.Tied, ", ") + " have the same priority"
	}
	return has, why
}
