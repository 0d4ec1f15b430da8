package plan

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/survey"
)

// sortNodes finds out what becomes of each node, and whether the pod fits there.
func (p *planner) sortNodes(before *survey.View) {
	room := p.survey.Room(&p.new.Spec.Template, p.new.Namespace)
	counts := &p.out.Nodes
	for _, n := range p.survey.Nodes {
		counts.Total++
		of := p.judge(before, n)
		p.of[n.Name] = of
		switch of {
		case changes:
			counts.Change++
		case joins:
			counts.New++
		case leaves:
			counts.Leave++
		case stays:
			counts.Stay++
		case outOfOrder:
			counts.OutOfOrder++
		}
		if of != changes && of != joins {
			continue
		}
		var leaving []*corev1.Pod
		if !p.surges() {
			leaving = p.view.Pods(n.Name)
		}
		if reasons := room.Reasons(n.Name, leaving); len(reasons) > 0 {
			p.lacking[n.Name] = reasons
			counts.NoRoom++
		}
	}
}

func (p *planner) judge(before *survey.View, n *corev1.Node) nodeOf {
	pods := p.view.Pods(n.Name)
	had := len(pods) > 0 || before != nil && before.Verdict(n.Name) != course.NotSelected
	switch selected := p.view.Selects(n.Name); {
	case !selected && len(pods) > 0:
		return leaves
	case !selected:
		return ignored
	case len(pods) > 0 && pods[len(pods)-1].Labels[appsv1.ControllerRevisionHashLabelKey] == p.view.Revision:
		return stays
	case p.survey.Fault(n.Name) != "":
		return outOfOrder
	case had:
		return changes
	}
	return joins
}

// surges tells whether a new pod starts beside the old one.
func (p *planner) surges() bool { return survey.Surges(p.new) }

// guided tells whether a policy leads the change, also that of who is to have a daemon.
func (p *planner) guided() bool { return p.view.Rules != nil && p.old != nil }

// onDelete tells whether old pods stay until somebody deletes them.
func (p *planner) onDelete() bool {
	return p.new.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
}
