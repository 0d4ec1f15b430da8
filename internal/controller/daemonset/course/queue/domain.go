package queue

import (
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// Place is one value of the label of a domain, which is the index of one of the policy's.
type Place struct {
	Domain int
	Value  string
}

// Domain is the sums of one place.
type Domain struct {
	Place                Place
	Nodes, Down, Staying int
	// Full: no further node may go down. stuck: nodes that stay down see to that alone.
	Full, stuck bool
	groups      map[*Group]bool
	lines       map[*Step]*line
}

func newDomain(p Place) *Domain {
	return &Domain{Place: p, groups: map[*Group]bool{}, lines: map[*Step]*line{}}
}

// count takes a member's old contribution off and adds the new one.
func (d *Domain) count(was, is *Standing) {
	change := func(e standing.Effect) int { return one(is.Has(e)) - one(was.Has(e)) }
	d.Nodes += change(standing.Selected)
	d.Down += change(standing.Down)
	d.Staying += change(standing.Stays)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Group is the nodes that are in the same domains.
type Group struct {
	Domains []*Domain
	key     string
	members map[*Member]bool
	// home is the domain in whose line it stands while none is full: one that is for nobody else, if it is in none.
	home *Domain
}

// holder is a domain that lets no node of the group go; where none holds it up, its home.
func (g *Group) holder() *Domain {
	for _, d := range g.Domains {
		if d.Full {
			return d
		}
	}
	return g.home
}

// Stuck reports whether nodes that stay down use up the limit of one of the domains alone.
func (g *Group) Stuck() bool {
	return slices.ContainsFunc(g.Domains, func(d *Domain) bool { return d.stuck })
}

// In reports whether the group is in one of the domains.
func (g *Group) In(some []*Domain) bool {
	return slices.ContainsFunc(some, func(d *Domain) bool { return slices.Contains(g.Domains, d) })
}

// Limits says which of the group's domains, which are those of a policy, let no further node go.
func (g *Group) Limits(of []rolloutpolicy.Domain) string {
	var full []string
	for _, d := range g.Domains {
		if d.Full {
			full = append(full, fmt.Sprintf("%s=%s has %d unavailable, %s allowed",
				of[d.Place.Domain].Key, d.Place.Value, d.Down, of[d.Place.Domain].MaxUnavailable))
		}
	}
	return strings.Join(full, "; ")
}
