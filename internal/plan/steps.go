package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/pod"
	"github.com/everynode/everynode/internal/rolloutpolicy"
	"github.com/everynode/everynode/internal/survey"
)

// steps lays out the nodes that get a pod, or lose theirs because a policy says when, in the order of the policy. Where nodes have nothing to stay with meanwhile, or no
// policy says otherwise, they are one step.
func (p *planner) steps() {
	var moving []string
	fleet := rolloutpolicy.NewFleet(p.rules())
	for _, n := range p.survey.Nodes {
		switch of := p.of[n.Name]; of {
		case leaves:
			if !p.guided() {
				continue
			}
			fallthrough
		case changes, joins:
			moving = append(moving, n.Name)
			fallthrough
		case stays, outOfOrder:
			fleet.Set(n.Name, n.Labels)
		}
	}
	if len(moving) == 0 {
		return
	}
	if p.first() {
		p.out.Steps = []Step{p.step("all", &rolloutpolicy.Wave{Soak: p.longestSoak()}, moving, fleet.Len(), fleet.Len(), nil)}
		return
	}
	of := map[rolloutpolicy.Step][]string{}
	for _, name := range moving {
		step, _ := fleet.Step(name)
		of[step] = append(of[step], name)
	}
	if why := fleet.TooFine(); why != "" {
		p.add("%s; nothing would begin", why)
	}
	able := p.able(fleet)
	var last *Step
	works := 0
	for _, at := range fleet.Steps() {
		names := of[at]
		works += able[at]
		if len(names) == 0 {
			continue
		}
		name := p.rules().StepName(at)
		if p.rules() == p.view.Steady {
			name = "all"
		}
		wave := &p.rules().Waves[at.Wave]
		s := p.step(name, wave, names, fleet.Size(at), fleet.Len(), last)
		p.ask(&s, wave, able[at], works)
		p.out.Steps = append(p.out.Steps, s)
		last = &s
	}
}

// able counts in each step the nodes on which the revision can show whether it works. Where it takes a pod away and has no room
// it fails.
func (p *planner) able(fleet *rolloutpolicy.Fleet) map[rolloutpolicy.Step]int {
	out := map[rolloutpolicy.Step]int{}
	for _, n := range p.survey.Nodes {
		switch of := p.of[n.Name]; {
		case of == stays, of == changes, of == joins && len(p.lacking[n.Name]) == 0:
			step, _ := fleet.Step(n.Name)
			out[step]++
		}
	}
	return out
}

// ask adds that a step asks for approval though its wave does not, as a canary does that shows nothing. Able is on how many
// of its nodes the revision can work, works the same of all steps so far.
func (p *planner) ask(s *Step, wave *rolloutpolicy.Wave, able, works int) {
	if wave.Manual || wave.Each != "" || wave.Name == rolloutpolicy.RestName {
		return
	}
	switch {
	case able+s.Leave == 0:
		s.From += ", then approval"
		p.add("no node of step %s can take the change now, so it asks for approval", s.Name)
	case s.Leave > 0 && works == 0:
		s.From += ", then approval"
		p.add("step %s only takes the daemon away, which does not show that the revision works, so it asks for approval", s.Name)
	}
}

// step describes the nodes that are changed together.
func (p *planner) step(name string, wave *rolloutpolicy.Wave, names []string, size, fleet int, last *Step) Step {
	s := Step{Name: name, Nodes: len(names), AtOnce: p.atOnce(wave, names, size, fleet), From: p.from(last, wave), soak: wave.Soak}
	for _, name := range names {
		if p.of[name] == leaves {
			s.Leave++
		}
		if reasons := p.lacking[name]; len(reasons) > 0 {
			s.NoRoom = append(s.NoRoom, Lack{Node: name, Reasons: reasons})
		}
	}
	return s
}

// first tells whether there is no stable revision yet that nodes could stay with or go back to. Then all steps are open.
func (p *planner) first() bool {
	return p.old == nil || p.view.Rules != nil && p.view.Rollout != nil && p.view.Rollout.Status.StableRevision == "" &&
		!mostHave(&p.view.Rollout.Status)
}

// mostHave tells whether the target of a rollout works on most nodes, so that it is the stable revision for the next.
func mostHave(s *v1alpha1.DaemonSetRolloutStatus) bool {
	selected := int32(0)
	for verdict, n := range s.Counts {
		if verdict != string(course.NotSelected) {
			selected += n
		}
	}
	failed := slices.ContainsFunc(s.FailedRevisions, func(f v1alpha1.FailedRevision) bool { return f.Revision == s.TargetRevision })
	return !failed && 2*s.Counts[string(course.Current)] > selected
}

func (p *planner) longestSoak() (longest time.Duration) {
	for i := range p.rules().Waves {
		longest = max(longest, p.rules().Waves[i].Soak)
	}
	return longest
}

// rules are those of the policy, or of one with a single step.
func (p *planner) rules() *rolloutpolicy.Policy {
	if p.view.Rules != nil {
		return p.view.Rules
	}
	return p.view.Steady
}

// from says what a step waits for, and what follows on it.
func (p *planner) from(last *Step, wave *rolloutpolicy.Wave) string {
	text := "now"
	switch open, next := p.rules().Windows.Open(p.survey.Now); {
	case p.onDelete():
		return "when somebody deletes the old pod"
	case p.escapes != "":
		return "after approval of step All"
	case last != nil:
		text = "after " + last.Name
	case !open:
		text = next.UTC().Format("from Mon 2006-01-02 15:04 UTC")
	}
	if wave.Soak > 0 {
		text += ", then " + short(wave.Soak) + " soak"
	}
	if wave.Manual {
		text += ", then approval"
	}
	return text
}

// atOnce is how many of a step's nodes at most are changed at a time: as many as its own limit allows, and those of each
// domain together.
func (p *planner) atOnce(wave *rolloutpolicy.Wave, names []string, size, fleet int) int {
	if p.onDelete() {
		return 0
	}
	limit := survey.Limit(p.new).Of(fleet)
	if wave.MaxUnavailable != nil {
		limit = wave.MaxUnavailable.Of(size)
	}
	if p.old == nil {
		limit = len(names) // nothing is taken away from nodes that have nothing
	}
	limit = min(max(limit, 1), len(names))
	for _, d := range p.rules().Domains {
		limit = min(limit, p.domainLimit(d, names))
	}
	return limit
}

func (p *planner) domainLimit(d rolloutpolicy.Domain, names []string) (most int) {
	all, here := map[string]int{}, map[string]int{}
	for _, n := range p.survey.Nodes {
		if value, has := n.Labels[d.Key]; has && p.of[n.Name] != ignored && (p.of[n.Name] != leaves || p.guided()) {
			all[value]++
		}
	}
	for _, name := range names {
		value, has := p.survey.Node(name).Labels[d.Key]
		if !has {
			most++
			continue
		}
		here[value]++
	}
	for value, n := range here {
		most += min(n, d.MaxUnavailable.Of(all[value]))
	}
	return most
}

// images finds how many of the nodes have each image that is not one of before.
func (p *planner) images() {
	before := map[string]bool{}
	if p.old != nil {
		for _, c := range containers(&p.old.Spec.Template.Spec) {
			before[c.Image] = true
		}
	}
	for _, c := range containers(&p.new.Spec.Template.Spec) {
		if before[c.Image] {
			continue
		}
		before[c.Image] = true
		i := Image{Image: c.Image}
		for _, n := range p.survey.Nodes {
			if of := p.of[n.Name]; of != changes && of != joins {
				continue
			}
			i.Of++
			if hasImage(n, c.Image) {
				i.On++
			}
		}
		if i.Of > 0 {
			p.out.Images = append(p.out.Images, i)
		}
	}
}

func containers(spec *corev1.PodSpec) []corev1.Container {
	return slices.Concat(spec.InitContainers, spec.Containers)
}

// hasImage looks for the image by all names that nodes report it by.
func hasImage(n *corev1.Node, image string) bool {
	names := []string{image, "docker.io/" + image, "docker.io/library/" + image}
	if !strings.Contains(image[strings.LastIndexByte(image, '/')+1:], ":") && !strings.Contains(image, "@") {
		for _, name := range names {
			names = append(names, name+":latest")
		}
	}
	return slices.ContainsFunc(n.Status.Images, func(i corev1.ContainerImage) bool {
		return slices.ContainsFunc(i.Names, func(have string) bool { return slices.Contains(names, have) })
	})
}

// estimate reckons with the time that the pods which are there took to become available.
func (p *planner) estimate() {
	if p.old == nil || p.onDelete() {
		return
	}
	var took []time.Duration
	for _, n := range p.survey.Nodes {
		for _, o := range p.view.Pods(n.Name) {
			if ready, ok := pod.ReadySince(o); ok {
				took = append(took, max(ready.Sub(o.CreationTimestamp.Time), time.Second))
			}
		}
	}
	if len(took) == 0 || len(p.out.Steps) == 0 {
		return
	}
	slices.SortFunc(took, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	e := &Estimate{EachBatch: took[len(took)/2] + time.Duration(p.new.Spec.MinReadySeconds)*time.Second}
	for _, s := range p.out.Steps {
		batches := (s.Nodes + s.AtOnce - 1) / max(s.AtOnce, 1)
		e.Changing += time.Duration(batches) * e.EachBatch
		e.Soaking += s.soak
	}
	if perMinute := p.rules().NodesPerMinute; perMinute > 0 {
		moving := 0
		for _, s := range p.out.Steps {
			moving += s.Nodes
		}
		e.Changing = max(e.Changing, time.Duration(moving)*time.Minute/time.Duration(perMinute))
	}
	p.out.Estimate = e
}

// add adds a warning.
func (p *planner) add(format string, args ...any) {
	p.out.Warnings = append(p.out.Warnings, fmt.Sprintf(format, args...))
}

// warn says what somebody should think of before.
func (p *planner) warn() {
	if p.old != nil && p.out.Changes() {
		p.out.Warnings = append(p.out.Warnings, p.survey.Unseen(p.old)...)
	}
	p.warnOfHolds()
	if n := p.out.Nodes; n.Leave > 0 && n.Change+n.New+n.Stay+n.OutOfOrder == 0 {
		how := "at once"
		if p.guided() {
			how = "step by step"
		}
		p.add("the template selects no node: the daemon is taken away from all, %s", how)
	}
	if p.out.Nodes.Change+p.out.Nodes.New > 0 {
		p.warnOfChange()
	}
}

// warnOfHolds says why nothing would begin.
func (p *planner) warnOfHolds() {
	if p.escapes != "" {
		p.add("no policy selects it any more, and policy %s did: a write that takes it out and changes its template is held until somebody approves step All", p.escapes)
	}
	if p.view.Broken != "" {
		p.add("policy %s cannot be followed, so nothing would begin: %s", p.out.Policy, p.view.Broken)
	}
	if r := p.view.Rollout; r != nil && p.view.Rules != nil {
		p.warnOfFailures(&r.Status)
		if r.Spec.Paused {
			p.add("the rollout is paused; nothing begins before \"everynode rollout resume\"")
		}
	}
	total := p.out.Nodes.Change + p.out.Nodes.New + p.out.Nodes.Stay + p.out.Nodes.OutOfOrder
	if limit := p.rules().MaxNodeFaults; p.view.Rules != nil && limit.Exceeded(p.out.Nodes.OutOfOrder, total) {
		p.add("%d of %s are out of order, more than %s: nothing would begin", p.out.Nodes.OutOfOrder, survey.Count(total, "node"), limit)
	}
}

// warnOfFailures says that the revision would be refused: it has failed.
func (p *planner) warnOfFailures(s *v1alpha1.DaemonSetRolloutStatus) {
	const retry = "it is not tried without \"everynode rollout retry\""
	revision := p.view.Revision
	i := slices.IndexFunc(s.FailedRevisions, func(f v1alpha1.FailedRevision) bool { return f.Revision == revision })
	switch {
	case i >= 0:
		p.add("this revision has failed before (%s); %s", s.FailedRevisions[i].Why, retry)
	case slices.Contains(s.EarlierFailures, revision):
		p.add("this revision has failed before, too long ago to know how; %s", retry)
	}
}

// warnOfChange says what is dangerous in the change itself.
func (p *planner) warnOfChange() {
	if p.old != nil && p.first() {
		p.add("no revision is stable yet, so there is none to go back to: all steps are open")
	}
	for _, c := range p.new.Spec.Template.Spec.Containers {
		if c.ReadinessProbe == nil && c.StartupProbe == nil {
			p.add("container %s has no readinessProbe: it counts as ready as soon as it runs", c.Name)
		}
	}
	if p.out.Nodes.NoRoom > 0 && !p.surges() && !p.onDelete() && p.old != nil {
		p.add("nodes without room lose their old pod and get no new one")
	}
}

// short writes a duration without parts that are nothing: "10m", not "10m0s".
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
