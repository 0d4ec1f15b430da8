package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/objects/pod"
)

// fate is what becomes of one node.
type fate uint8

const (
	ignored fate = iota
	changes
	joins
	leaves
	stays
	waits
	outOfOrder
	inMaintenance
)

// newest is the newest pod of each node.
func (p *play) newest() map[string]fact.Pod {
	has := map[string]fact.Pod{}
	for uid, o := range p.pods {
		o.Revision = p.revision(uid)
		if was, there := has[o.Node]; !o.Terminating && (!there || was.Created.Before(o.Created)) {
			has[o.Node] = o
		}
	}
	return has
}

// sortNodes says what has become of each node.
func (p *planner) sortNodes() {
	has := p.newest()
	n := &p.out.Nodes
	counts := map[fate]*int{
		changes: &n.Change, joins: &n.New, leaves: &n.Leave, stays: &n.Stay, waits: &n.Wait, outOfOrder: &n.OutOfOrder,
		ignored: new(int), inMaintenance: &n.InMaintenance,
	}
	for _, node := range p.survey.Nodes {
		n.Total++
		of := p.fateOf(node.Name, has[node.Name])
		p.fates[node.Name] = of
		*counts[of]++
		if restart, is := p.resized[node.Name]; is && of == changes {
			n.Resize++
			if restart {
				n.Restart++
			}
		}
		if (of == changes || of == joins) && len(p.lack[node.Name]) > 0 {
			n.NoRoom++
		}
	}
}

func (p *planner) fateOf(node string, has fact.Pod) fate {
	uid := p.set.DaemonSet.UID
	there, newest := has.UID != "", has.UID != "" && has.Revision == p.set.Revision
	had := len(p.set.Pods(node)) > 0
	verdict, _, _ := p.core.Verdict(uid, node)
	if !p.core.Selects(uid, p.set.Revision, node) {
		switch {
		case there && verdict == standing.Waiting:
			return waits
		case there && verdict == standing.NodeFault:
			return outOfOrder
		case there && verdict == standing.InMaintenance:
			return inMaintenance
		case there:
			return stays
		case had:
			return leaves
		}
		return ignored
	}
	p.selects = true
	switch moved := p.of[node] != nil || p.touched[node] && newest; {
	case moved && !p.answers(node), !newest && p.survey.Fault(node) != "":
		return outOfOrder
	case moved && (had || p.oldRevision != "" && p.core.Selects(uid, p.oldRevision, node)):
		return changes
	case moved:
		return joins
	case newest:
		return stays
	case verdict == standing.InMaintenance:
		return inMaintenance
	}
	return waits
}

// table lists the steps that nodes were changed in.
func (p *planner) table() {
	for _, s := range p.steps {
		out := Step{Name: s.name, AtOnce: s.most, From: s.from}
		slices.Sort(s.nodes)
		for _, node := range s.nodes {
			if p.fates[node] == outOfOrder {
				continue
			}
			out.Nodes++
			if p.fates[node] == leaves {
				out.Leave++
			}
			if reasons := p.lack[node]; len(reasons) > 0 {
				out.NoRoom = append(out.NoRoom, Lack{Node: node, Reasons: reasons})
			}
		}
		if s.from == byHand {
			out.AtOnce = 0
		}
		if s.fetches {
			out.From += ", once its nodes have the images"
		}
		if soak := s.soak.Round(time.Second); soak > 0 {
			out.From += ", then " + short(soak) + " soak"
		}
		if s.asks {
			out.From += ", then approval"
		}
		p.out.Steps = append(p.out.Steps, out)
	}
}

// warnOfFetch says which nodes cannot be asked for images that they are to have before.
func (p *planner) warnOfFetch() {
	if p.set.Rollout != nil && p.set.Rollout.Status.FetchesByPods() {
		return
	}
	unable, such := 0, ""
	for _, s := range p.steps {
		for _, name := range s.nodes {
			n := p.survey.Node(name)
			if s.fetches && n != nil && p.fates[name] == changes && !fetch.Can(n.Labels) {
				unable++
				such = min(cmp.Or(such, name), name)
			}
		}
	}
	if unable > 0 {
		p.add("the agents of %s, such as %s, do not say that they can fetch images: each is waited for until fetchDeadline",
			survey.Count(unable, "node"), such)
	}
}

// images finds how many of the nodes have each image that is not one of before.
func (p *planner) images() {
	before := map[string]bool{}
	if p.old != nil {
		for _, o := range fetch.All(&p.old.Spec.Template.Spec) {
			before[o.Image] = true
		}
	}
	for _, is := range fetch.All(&p.set.DaemonSet.Spec.Template.Spec) {
		if before[is.Image] {
			continue
		}
		before[is.Image] = true
		i, names := Image{Image: is.Image}, namesOf(is.Image)
		for _, n := range p.survey.Nodes {
			if of := p.fates[n.Name]; of != changes && of != joins {
				continue
			}
			i.Of++
			if hasImage(n, names) {
				i.On++
			}
		}
		if i.Of > 0 {
			p.out.Images = append(p.out.Images, i)
		}
	}
}

// namesOf are all names that nodes report an image by.
func namesOf(image string) []string {
	names := []string{image}
	if named, err := reference.ParseNormalizedNamed(image); err == nil {
		named = reference.TagNameOnly(named)
		names = append(names, named.String(), reference.FamiliarString(named))
	}
	return names
}

// hasImage reports whether a node has the image of such names.
func hasImage(n *corev1.Node, names []string) bool {
	return slices.ContainsFunc(n.Status.Images, func(i corev1.ContainerImage) bool {
		return slices.ContainsFunc(i.Names, func(have string) bool { return slices.Contains(names, have) })
	})
}

// startTime is how long the pods that are there took to become ready, in the middle; false where nothing tells. One
// that was restarted says only since when it is ready again, unless other amounts had it restarted.
func startTime(s *survey.Survey, set *survey.Set) (time.Duration, bool) {
	took := []time.Duration{}
	for _, n := range s.Nodes {
		for _, o := range set.Pods(n.Name) {
			ready, ok := pod.ReadySince(o)
			from, restarts := pod.BoundSince(o), pod.Restarts(o) // before, it waits for room
			if r := resizing.RecordOf(o); r != nil && r.At.Before(ready) {
				from, restarts = r.At, pod.RestartsSince(o, r.RestartsBy)
			}
			if ok && restarts == 0 {
				took = append(took, max(ready.Sub(from), time.Second))
			}
		}
	}
	if len(took) == 0 {
		return 10 * time.Second, false
	}
	slices.Sort(took)
	return took[len(took)/2], true
}

// estimate says how long it took in the play.
func (p *planner) estimate() {
	e := &Estimate{
		Soaking: p.spent[v1alpha1.PhaseSoaking], Waiting: p.spent[v1alpha1.PhaseOutsideWindow], EachBatch: p.batch(),
	}
	for _, d := range p.spent {
		e.Changing += d
	}
	e.Changing -= e.Soaking + e.Waiting
	p.out.Estimate = e
}
