// Package varied says which variants a DaemonSet has, on how many nodes, and what is wrong with them. It is pure.
package varied

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/variant"
)

// Variants are those of one DaemonSet.
type Variants struct {
	// Of are they, the one that counts first before others.
	Of []Variant `json:"of"`
	// Template is how many of its nodes have the template as it is, Tied on how many several are in conflict.
	Template int `json:"template"`
	Tied     int `json:"tied"`
}

// Variant is one of them.
type Variant struct {
	Name     string `json:"name"`
	Priority int32  `json:"priority"`
	// Nodes is how many nodes with a pod of the DaemonSet it chooses, alone.
	Nodes int `json:"nodes"`
	// Says is what is wrong, each with a tone: "bad" for what cannot be had, and "warn" for a conflict.
	Says []Remark `json:"says"`
	// Unread tells that the controller has not said anything of the variant as it is now.
	Unread bool `json:"unread,omitempty"`
}

// Remark is a condition in words.
type Remark struct {
	Tone string `json:"tone"`
	Text string `json:"text"`
	// Since is when it began.
	Since time.Time `json:"since"`
}

// Of finds the variants that choose a DaemonSet. The view is nil where nobody knows where it stands: then no nodes are
// counted. It is nil for a DaemonSet without variants.
func Of(s *survey.Survey, ds *appsv1.DaemonSet, view *survey.View) *Variants {
	out := &Variants{Of: []Variant{}}
	nodes := map[string]int{}
	if view != nil {
		nodes, out.Tied = view.Choices()
		out.Template = nodes[""]
	}
	for _, v := range s.Variants {
		if !variant.Selects(v, ds) {
			continue
		}
		out.Of = append(out.Of, Variant{
			Name: v.Name, Priority: v.Spec.Priority, Nodes: nodes[v.Name], Says: Remarks(v), Unread: !isSaid(v),
		})
	}
	if len(out.Of) == 0 {
		return nil
	}
	slices.SortFunc(out.Of, func(a, b Variant) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// isSaid reports whether the status speaks of the variant as it is now.
func isSaid(v *v1alpha1.DaemonSetVariant) bool {
	c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VariantApplies)
	return c != nil && v.Status.ObservedGeneration == v.Generation
}

// Remarks says what the controller has against a variant as it is now.
func Remarks(v *v1alpha1.DaemonSetVariant) []Remark {
	out := []Remark{}
	if err := newer.Check(v); err != nil {
		return append(out, Remark{"bad", err.Error(), v.CreationTimestamp.UTC()})
	}
	if !isSaid(v) {
		return out
	}
	for _, wrong := range []struct {
		kind, tone string
		is         metav1.ConditionStatus
	}{{v1alpha1.VariantApplies, "bad", metav1.ConditionFalse}, {v1alpha1.VariantConflict, "warn", metav1.ConditionTrue}} {
		if c := meta.FindStatusCondition(v.Status.Conditions, wrong.kind); c != nil && c.Status == wrong.is {
			out = append(out, Remark{wrong.tone, c.Message, c.LastTransitionTime.UTC()})
		}
	}
	return out
}
