package starting

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// never says what nodes would wait for and not get. With "then: Open" it only costs its timeout.
func (p *planner) never() {
	if len(p.lacking()) > 0 {
		return // no node is closed
	}
	for i := range p.out.Groups {
		g := &p.out.Groups[i]
		for j := range g.DaemonSets {
			d := &g.DaemonSets[j]
			why := p.inVain(d, i)
			switch {
			case why == "":
			case g.Then == string(v1alpha1.ThenOpen):
				p.add("group %d goes on without %s/%s after its timeout of %s on every node: %s", i+1, d.Namespace, d.Name,
					g.Timeout, why)
			default:
				p.out.Never = append(p.out.Never, fmt.Sprintf("nodes stay closed at group %d for %s/%s: %s", i+1, d.Namespace,
					d.Name, why))
			}
		}
	}
}

// inVain says why a daemon of a group will not be available in time; "" if nothing shows.
func (p *planner) inVain(d *DaemonSet, group int) string {
	if d.Missing {
		return "there is no such DaemonSet"
	}
	if d.Nodes > 0 && d.Available == 0 && d.Why != "" && d.Why != noPod {
		return fmt.Sprintf("it is available on none of the %s that it is to run on, such as %s: %s",
			survey.Count(d.Nodes, "node"), d.Lacks, d.Why)
	}
	ds := p.sets[types.NamespacedName{Namespace: d.Namespace, Name: d.Name}]
	least := time.Duration(ds.Spec.MinReadySeconds) * time.Second
	if p.new.Spec.Groups[group].Then == v1alpha1.ThenOpen && least >= p.timeoutOf(group) {
		return fmt.Sprintf("it is available %s after it is ready at the earliest (minReadySeconds)", least)
	}
	return ""
}

// warn says what somebody should think of before.
func (p *planner) warn() {
	n := p.out.Nodes
	switch {
	case n.Total > 0 && n.Chosen == 0:
		p.add("it chooses none of the %s", survey.Count(n.Total, "node"))
	case n.Follow < n.Chosen:
		p.add("%s of the chosen nodes follow a NodeStartup whose name sorts first", survey.Number(n.Chosen-n.Follow))
	}
	p.warnOfGroups()
	p.warnElsewhere()
	if p.out.Pods.Tolerant > 0 {
		p.add("%s there would be placed on closed nodes too: they tolerate every taint, or this one",
			survey.Count(p.out.Pods.Tolerant, "ordinary pod"))
	}
	if p.out.Pods.Unmarked > 0 {
		p.add("%s there carry no group, or another one, until they are replaced: when their machine goes down or starts "+
			"again they count as before", survey.Count(p.out.Pods.Unmarked, "listed daemon"))
	}
}

// bars reports whether a listed DaemonSet keeps nodes from being closed, where another controller makes its pods.
func (p *planner) bars(ds *listed) bool {
	return p.survey.Beside() && !nodestartup.Tolerated(&ds.Spec.Template.Spec)
}

// lacking are the listed DaemonSets because of which no node is closed, where another controller makes their pods.
func (p *planner) lacking() []types.NamespacedName {
	if !p.survey.Beside() {
		return nil
	}
	return plan.Lacking(p.new, func(name types.NamespacedName) plan.Standing {
		ds := p.sets[name]
		if ds == nil {
			return plan.Missing
		}
		return plan.StandingOf(ds.DaemonSet)
	})
}

// warnElsewhere says what is not to be had on an API server of others.
func (p *planner) warnElsewhere() {
	if lacking := p.lacking(); len(lacking) > 0 {
		p.add("%s", plan.BarredBy(p.new.Name, lacking))
	}
	if p.setting() != plan.Home && p.new.Spec.Gate == v1alpha1.GateNone {
		p.add("ordinary pods may take the room of daemons that are to come: the cluster's scheduler keeps none")
	}
	if p.survey.Beside() && len(p.new.Spec.Groups) > 1 {
		p.add("another controller makes the pods here: the daemons of all groups start at once")
	}
}

// warnOfGroups says of each group what is not as people may think.
func (p *planner) warnOfGroups() {
	for i := range p.out.Groups {
		g, idle := &p.out.Groups[i], true
		for j := range g.DaemonSets {
			d := &g.DaemonSets[j]
			idle = idle && !d.Missing && d.Nodes == 0
			if d.Available > 0 && d.Available < d.Nodes {
				p.add("%s/%s is available on %s of %s that it is to run on; %s: %s. A node like that would wait for it",
					d.Namespace, d.Name, survey.Number(d.Available), survey.Count(d.Nodes, "node"), d.Lacks, d.Why)
			}
		}
		if idle && p.out.Nodes.Follow > 0 {
			p.add("group %d is to run on none of the nodes that follow it, and is passed at once", i+1)
		}
		if length := p.timeoutOf(i); g.Then == string(v1alpha1.ThenOpen) && length > nodestartup.HeldFor {
			p.add("the timeout of group %d counts for the taint only: after a start of the machine pods wait for two "+
				"minutes at most", i+1)
		}
	}
}

// add adds a warning.
func (p *planner) add(format string, args ...any) {
	p.out.Warnings = append(p.out.Warnings, fmt.Sprintf(format, args...))
}
