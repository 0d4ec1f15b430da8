// Package fact is what the DaemonSet controller reads of the API: of a DaemonSet, a Node, a Pod and a rollout just what
// decisions go by, in a form that can be compared. The same fact twice is no work.
package fact

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Strategy is how a row replaces pods of an older revision. It is comparable.
type Strategy struct {
	// OnDelete leaves old pods alone until somebody deletes them.
	OnDelete bool
	// MaxUnavailable and MaxSurge are counts of cells or percentages of the
	// desired cells, rounded up.
	MaxUnavailable, MaxSurge intstr.IntOrString
}

// Surges reports whether the strategy allows a second pod on a node.
func (s *Strategy) Surges() bool { return !s.OnDelete && resolve(s.MaxSurge, 1) > 0 }

// Budget resolves the strategy against the number of desired cells.
func (s *Strategy) Budget(desired int) (maxUnavailable, maxSurge int) {
	maxUnavailable, maxSurge = resolve(s.MaxUnavailable, desired), resolve(s.MaxSurge, desired)
	if desired > 0 && maxUnavailable == 0 && maxSurge == 0 {
		maxUnavailable = 1
	}
	return maxUnavailable, maxSurge
}

// resolve rounds percentages up. What is neither a number nor a percentage,
// which the API does not accept, counts as zero.
func resolve(v intstr.IntOrString, total int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, total, true)
	if err != nil {
		return 0
	}
	return n
}

// First says how many nodes may be given a template now.
type First uint8

// The values of First.
const (
	NoFirst       First = iota // as many as limits allow
	FirstIsWanted              // one
	FirstPulls                 // none
)

// Firsts says of each template how many nodes may be given it now: of the newest one, of what nodes have before their
// turn, and of what a rollout goes to. Without any, as many as limits allow.
type Firsts [3]struct {
	Template string // its hash
	First    First
}

// Of says it of a template. What nothing was said of is given to no node.
func (f *Firsts) Of(template string) First {
	if f[0].Template == "" {
		return NoFirst
	}
	for i := range f {
		if f[i].Template == template {
			return f[i].First
		}
	}
	return FirstPulls
}

// Set says something of a template, instead of what was said before.
func (f *Firsts) Set(template string, to First) {
	for i := range f {
		if f[i].Template == template || f[i].Template == "" {
			f[i].Template, f[i].First = template, to
			return
		}
	}
}

// DaemonSet is all that the matrix reads of a DaemonSet.
type DaemonSet struct {
	UID             types.UID
	Namespace, Name string
	// Generation is the generation of the spec that the other fields describe.
	// A new generation forgives failed pods.
	Generation int64
	// Revision is the hash of the current template; where content is a part of it, of both.
	Revision string
	// Digest is that of the current template, for the status of a rollout.
	Digest string `json:",omitempty"`
	// Renamed is what the revision was called by other rules of the policy for its content, "" if it is another than the
	// last one by more than that.
	Renamed string `json:",omitempty"`
	// Content is what the status of a rollout says of the revision's content; nil where it has none.
	Content *v1alpha1.ContentStatus `json:",omitempty"`
	// Live says between which contents a pod of the template can go without a restart; nil for none.
	Live *Live `json:",omitempty"`
	// Images is what it says of images; nil where they are as written.
	Images *v1alpha1.ImagesStatus `json:",omitempty"`
	// MoreImages is how many images the current template has beyond those that a node can be asked for.
	MoreImages int `json:",omitempty"`
	// FetchHindered is what hinders that pods fetch images before their turn; "" for nothing.
	FetchHindered string `json:",omitempty"`
	// First says of which templates pods wait for what the first one's node finds out.
	First     Firsts `json:",omitzero"`
	Placement *placement.Rules
	// Earlier has the placement rules of earlier revisions. Without a policy they do not
	// matter.
	Earlier         *placement.Revisions `json:",omitempty"`
	Strategy        Strategy
	MinReadySeconds int32
	// Held stops creations and deletions, not counting: the row's next revision
	// is being worked out.
	Held bool
	// Deleting stops every action: the DaemonSet is on its way out.
	Deleting bool
	// Reported is the status as last read from the API.
	Reported Status
	// Conditions are those last read from the API. They matter when the row is
	// added: after that the matrix knows what it wrote, and does not fight
	// somebody who writes them otherwise.
	Conditions Conditions
}

// Live are the ways from content to content that a running pod of the newest template can go.
type Live struct {
	// Ways are pairs of IDs; that of no content is "".
	Ways [][2]string
	// Settle is how long after its volumes show a content the pod is judged.
	Settle time.Duration
}

// Leads reports whether a pod of one revision can be made one of another without a restart.
func (l *Live) Leads(from, to string) bool {
	return l != nil && content.TemplateOf(from) == content.TemplateOf(to) &&
		content.VariantsOf(from) == content.VariantsOf(to) &&
		slices.Contains(l.Ways, [2]string{content.IDOf(from), content.IDOf(to)})
}

// Apart reports whether the rules of an earlier revision say something else than those of the newest.
func (d *DaemonSet) Apart() bool {
	if d.Earlier == nil {
		return false
	}
	for _, rules := range d.Earlier.ByRevision {
		if !rules.Same(d.Placement) {
			return true
		}
	}
	return false
}

// AllRules are the placement rules of all revisions that are known.
func (d *DaemonSet) AllRules() placement.Set {
	return placement.Set{Newest: d.Revision, Rules: d.Placement, Earlier: d.Earlier}
}
