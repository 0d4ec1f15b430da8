package placement

import (
	"cmp"
	"hash/fnv"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/nodeaffinity"
	"github.com/everynode/everynode/internal/fit/volumes"
	"github.com/everynode/everynode/internal/scheduler/score"
)

// Placer places pods one after another. Call New.
type Placer struct {
	seed uint64
	// cursor is how many nodes all searches have visited. The next one starts after as many, whichever nodes it is over:
	// one over few nodes, or over none, must not have those after it start where they have been.
	cursor int
	// remembered are the latest answers of all nodes to pods that did not find enough of them, the latest first.
	remembered []*answers
}

// New returns a Placer. Equal seeds and inputs give equal placements.
func New(seed uint64) *Placer { return &Placer{seed: seed} }

// View is what a placement looks at.
type View struct {
	Cluster *fit.Cluster
	// Nominated holds the pods that wait for victims to leave; their room is not given away to lesser pods.
	Nominated *Nominations
	Budgets   Budgets
	// ToCome returns the daemons for which a node keeps room; nil for none anywhere.
	ToCome func(*fit.Node) []*fit.Pod
}

// Result says where the pod goes, or why it goes nowhere.
type Result struct {
	// Node is the chosen node, "" if none fits.
	Node string
	// Uses are the claims that are to get their volumes because the pod goes there.
	Uses []volumes.Use
	// Diagnosis explains the nodes that do not fit; complete only when Node is "".
	Diagnosis Diagnosis
}

// Place chooses a node for pod. The result is good until the next call.
func (p *Placer) Place(pod *fit.Pod, view View) Result {
	diagnosis := Diagnosis{Total: len(view.Cluster.Nodes())}
	question := view.Cluster.Ask(pod)
	candidates, search := p.candidates(pod, question, view, &diagnosis)
	diagnosis.Unbound = question.Unbound()
	if diagnosis.Unbound != "" {
		diagnosis.HelpedBy = fit.VolumesChanged | fit.DevicesChanged
		return Result{Diagnosis: diagnosis}
	}
	if node := nominated(pod, question, view); node != "" {
		return Result{Node: node, Uses: question.Uses(view.Cluster.Node(node))}
	}
	enough, first := len(candidates), 0
	if search && enough > 0 {
		enough, first = nodesToFind(diagnosis.Total), p.cursor%enough
	}
	var feasible []*fit.Node
	visited := 0
	for ; visited < len(candidates) && len(feasible) < enough; visited++ {
		node := candidates[(first+visited)%len(candidates)]
		if reasons := check(pod, node, nil, question, view); len(reasons) > 0 {
			diagnosis.add(node, failureOf(reasons))
			continue
		}
		feasible = append(feasible, node)
	}
	if search {
		p.cursor += visited
	}
	// To ask all nodes costs more than a search that finds enough before, and is in vain if so many sorts are tried that
	// none is remembered until its next attempt.
	if search && visited == diagnosis.Total && question.NodesAlone() {
		p.remember(pod)
	}
	if len(feasible) == 0 {
		diagnosis.HelpedBy |= fit.NodeAdded
		return Result{Diagnosis: diagnosis}
	}
	best := p.best(pod, feasible, view)
	return Result{Node: best.Name, Uses: question.Uses(best), Diagnosis: diagnosis}
}

// candidates returns the nodes to look at, and whether the search may start anywhere and end when enough were found.
// Nodes of which it is known that they do not fit are in the diagnosis instead.
func (p *Placer) candidates(
	pod *fit.Pod, question *fit.Question, view View, diagnosis *Diagnosis,
) (nodes []*fit.Node, search bool) {
	names, named := nodeaffinity.Names(&pod.Object.Spec)
	if !named {
		var known *answers
		if question.NodesAlone() {
			known = p.known(pod)
		}
		if known == nil {
			return view.Cluster.Nodes(), true
		}
		known.update(view.Cluster, question)
		known.tell(diagnosis)
		return known.fit.nodes, true
	}
	diagnosis.Narrowed = append([]string{}, names...)
	for _, name := range names {
		if node := view.Cluster.Node(name); node != nil {
			nodes = append(nodes, node)
		}
	}
	return nodes, false
}

// nominated returns the node for which the pod has preempted others, or for which its claims get volumes, if it fits
// there now: it was promised to it.
func nominated(pod *fit.Pod, question *fit.Question, view View) string {
	name := cmp.Or(pod.Object.Status.NominatedNodeName, view.Nominated.Node(pod.UID))
	if name == "" {
		return ""
	}
	node := view.Cluster.Node(name)
	if node == nil || len(check(pod, node, nil, question, view)) > 0 {
		return ""
	}
	return name
}

// TextRoomKept is what a node is reported with that has room for the pod, and keeps it.
const TextRoomKept = "node(s) keep room for daemons that are still to start there"

// check asks whether a pod fits on a node that some pods have left. Pods nominated to it that are not less important
// than pod count as there, as do daemons that are still to come; it must fit without them too, for they may never come.
func check(pod *fit.Pod, node *fit.Node, left []*fit.Pod, question *fit.Question, view View) []fit.Reason {
	reasons := question.First(node, fit.Trial{Removed: left})
	if len(reasons) > 0 {
		return reasons
	}
	promised := view.Nominated.on(node.Name, pod)
	if len(promised) > 0 {
		reasons = question.First(node, fit.Trial{Added: promised, Removed: left})
	}
	if len(reasons) > 0 || view.ToCome == nil {
		return reasons
	}
	coming := slices.DeleteFunc(view.ToCome(node), func(daemon *fit.Pod) bool {
		return daemon.Priority < pod.Priority || daemon.Controller == pod.Controller
	})
	if len(coming) > 0 && len(question.First(node, fit.Trial{Added: append(coming, promised...), Removed: left})) > 0 {
		return []fit.Reason{{Rule: fit.TaintToleration, Text: TextRoomKept}} // until the taint of its start changes
	}
	return nil
}

// best ranks the nodes and returns the first.
func (p *Placer) best(pod *fit.Pod, nodes []*fit.Node, view View) *fit.Node {
	if len(nodes) == 1 {
		return nodes[0]
	}
	total := score.Nodes(pod, nodes, view.Cluster)
	best := 0
	for i := 1; i < len(nodes); i++ {
		if total[i] > total[best] || total[i] == total[best] &&
			p.rank(pod.UID, nodes[i].Name) < p.rank(pod.UID, nodes[best].Name) {
			best = i
		}
	}
	return nodes[best]
}

// rank orders nodes of equal score, differently for each pod so that equal nodes share the pods.
func (p *Placer) rank(uid types.UID, nodeName string) uint64 {
	hash := fnv.New64a()
	for shift := 0; shift < 64; shift += 8 {
		hash.Write([]byte{byte(p.seed >> shift)})
	}
	hash.Write([]byte(uid))
	hash.Write([]byte(nodeName))
	return hash.Sum64()
}

// nodesToFind is how many fitting nodes are enough to choose well among: all of up to 100, then a part that shrinks
// from a half to a twentieth as clusters grow.
func nodesToFind(all int) int {
	if all <= 100 {
		return all
	}
	percent := max(50-all/125, 5)
	return max(all*percent/100, 100)
}
