package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/change/survey"
)

// add adds a warning.
func (p *planner) add(format string, args ...any) {
	p.out.Warnings = append(p.out.Warnings, fmt.Sprintf(format, args...))
}

// warn says what somebody should think of before.
func (p *planner) warn() {
	if p.old != nil && p.out.Changes() {
		p.out.Warnings = append(p.out.Warnings, p.survey.Unseen(p.stored)...)
	}
	p.out.Warnings = append(p.out.Warnings, p.besides...)
	p.out.Warnings = append(p.out.Warnings, p.warnings...)
	if why := p.set.Unread(); why != "" {
		p.add("it is not known which content this is, so neither is whether nodes have it, or it has failed before: %s", why)
	}
	p.warnOfEnd()
	p.warnOfFetch()
	n := p.out.Nodes
	if n.Leave > 0 && !p.selects {
		how := "at once"
		if p.guided {
			how = "step by step"
		}
		p.add("the template selects no node: the daemon is taken away from all, %s", how)
	}
	if n.Change+n.New > 0 {
		p.warnOfChange()
	}
	if n := len(p.unanswered); n > 0 && p.out.Changes() {
		p.add("a resize is under way on %s, such as %s: the plan takes for granted that there is room for it",
			survey.Count(n, "node"), slices.Min(p.unanswered))
	}
	if p.restarts != "" {
		p.add("the policy says apply: Live, and pods are replaced all the same: %s", p.restarts)
	}
}

// warnOfEnd says why nodes do not change.
func (p *planner) warnOfEnd() {
	st, begins := &p.status, "nothing more begins"
	if len(p.steps) == 0 {
		begins = "nothing begins"
	}
	switch waiting := p.out.Nodes.Wait; {
	case failed(&p.first):
		p.add("%s: %s; it is not tried without \"everynode rollout retry\"", begins, st.Message)
	case failed(st):
		p.add("the rollout would be %s: %s", st.Phase, st.Message)
	case p.guided && st.Phase != v1alpha1.PhaseComplete && st.Phase != v1alpha1.PhaseProgressing:
		p.add("%s: %s", begins, strings.TrimPrefix(st.Message, "nothing new begins: "))
	case waiting > 0 && p.guided:
		p.add("%s would not change, such as %s", survey.Count(waiting, "node"), p.oneThatWaits())
	case waiting > 0:
		_, why, _ := strings.Cut(p.progressing.Message, "; ")
		p.add("%s would not change: %s", survey.Count(waiting, "node"), why)
	}
}

func failed(s *v1alpha1.DaemonSetRolloutStatus) bool {
	return s.Phase == v1alpha1.PhaseHalted || s.Phase == v1alpha1.PhaseRolledBack
}

// oneThatWaits is the first node that waits for good, and what for.
func (p *planner) oneThatWaits() string {
	for _, n := range p.survey.Nodes {
		if p.fates[n.Name] == waits {
			_, why, _ := p.core.Verdict(p.set.DaemonSet.UID, n.Name)
			if why == "its turn" {
				why = cmp.Or(p.survey.Busy(p.core, p.set.DaemonSet.UID), why)
			}
			return n.Name + ": " + why
		}
	}
	return ""
}

// warnOfContent says what the rollout tells of its content.
func (p *planner) warnOfContent() {
	if p.set.Rollout == nil {
		return
	}
	if r := p.failedWith(); r != "" {
		p.add("the content that it is to have has failed before, in revision %s: it begins at the first step again", r)
	}
	if c := p.set.Rollout.Status.Content; c != nil && c.Overtaken >= v1alpha1.OvertakenOften {
		p.add("its content changes faster than it can travel: %d times before it was everywhere; "+
			"exclude what changes so often, or set secrets: None", c.Overtaken)
	}
}

// failedWith is a revision of another template that failed with the content that the planned one is to have; "" if none
// did.
func (p *planner) failedWith() string {
	is := p.set.Revision
	id := content.IDOf(is)
	if id == "" || content.TemplateOf(is) == content.TemplateOf(p.set.Rollout.Status.TargetRevision) {
		return ""
	}
	for _, f := range slices.Backward(p.set.Rollout.Status.FailedRevisions) {
		if content.IDOf(f.Revision) == id && content.TemplateOf(f.Revision) != content.TemplateOf(is) {
			return f.Revision
		}
	}
	return ""
}

// warnOfVolumes says which image volumes will not be pinned, as a node was asked about them before and did not answer.
func (p *planner) warnOfVolumes() {
	if p.set.Rollout == nil || p.set.Rollout.Status.Images == nil {
		return
	}
	told, volumes := map[string]bool{}, pinning.VolumesOnly(&p.set.DaemonSet.Spec.Template.Spec)
	for _, t := range p.set.Rollout.Status.Images.Templates {
		for _, i := range t.Images {
			if i.Digest == "" && volumes[i.Image] && !told[i.Image] {
				told[i.Image] = true
				p.add("%s, of a volume, may not be pinned: when it was asked, %s did not say the digest that it got",
					i.Image, t.Node)
			}
		}
	}
}

// warnOfChange says what is dangerous in the change itself.
func (p *planner) warnOfChange() {
	switch {
	case p.old == nil || !p.guided || p.first.StableRevision != "":
	case p.first.Step == "":
		p.add("no revision is stable yet, so there is none to go back to: all steps are open")
	default:
		p.add("no revision is stable yet, so there is none to go back to")
	}
	p.warnOfContent()
	p.warnOfVolumes()
	for _, c := range p.set.DaemonSet.Spec.Template.Spec.Containers {
		if c.ReadinessProbe == nil && c.StartupProbe == nil {
			p.add("container %s has no readinessProbe: it counts as ready as soon as it runs", c.Name)
		}
	}
	if p.old != nil && !slices.Contains(p.asked, byHand) && p.robs() {
		p.add("nodes without room lose their old pod and get no new one")
	}
}

// robs reports whether a node without room has lost its pod.
func (p *planner) robs() bool {
	bound := map[string]bool{}
	for _, o := range p.pods {
		bound[o.Node] = bound[o.Node] || o.Bound
	}
	for node := range p.lack {
		if !bound[node] && len(p.set.Pods(node)) > 0 {
			return true
		}
	}
	return false
}
