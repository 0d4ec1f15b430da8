package placement

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// Rules are the rules of placement, in the order in which they are asked.
type Rules struct {
	Narrowers []plugins.Narrower
	Filters   []plugins.Filter
	Scorers   []plugins.Scorer
}

// Placer places pods one after another. Call New.
type Placer struct {
	rules  Rules
	seed   uint64
	cursor int // where the next search over all nodes starts
}

// New returns a Placer. Equal seeds and inputs give equal placements.
func New(rules Rules, seed uint64) *Placer {
	return &Placer{rules: rules, seed: seed}
}

// View is what a placement looks at.
type View struct {
	Cache *cache.Cache
	// Nominated holds the pods that wait for victims to leave; their room is not given away to lesser pods.
	Nominated *Nominations
	Budgets   Budgets
}

// Result says where the pod goes, or why it goes nowhere.
type Result struct {
	// Node is the chosen node, "" if none fits.
	Node string
	// Diagnosis explains the nodes that do not fit; complete only when Node is "".
	Diagnosis Diagnosis
}

// Place chooses a node for pod.
func (p *Placer) Place(pod *cache.Pod, view View) Result {
	diagnosis := Diagnosis{Total: len(view.Cache.Nodes())}
	candidates, search := p.candidates(pod, view, &diagnosis)
	checks := p.prepare(pod, view)
	if node := p.nominated(pod, checks, view); node != "" {
		return Result{Node: node}
	}
	enough := len(candidates)
	if search {
		enough = nodesToFind(len(candidates))
	}
	var feasible []*cache.Node
	visited := 0
	for ; visited < len(candidates) && len(feasible) < enough; visited++ {
		node := candidates[visited]
		if search {
			node = candidates[(p.cursor+visited)%len(candidates)]
		}
		if failure, ok := p.check(pod, node, checks, view); !ok {
			diagnosis.add(failure)
			continue
		}
		feasible = append(feasible, node)
	}
	if search && len(candidates) > 0 {
		p.cursor = (p.cursor + visited) % len(candidates)
	}
	if len(feasible) == 0 {
		p.helpers(&diagnosis)
		return Result{Diagnosis: diagnosis}
	}
	return Result{Node: p.best(pod, feasible, view).Name, Diagnosis: diagnosis}
}

// candidates returns the nodes to look at, and whether they are all nodes.
func (p *Placer) candidates(pod *cache.Pod, view View, diagnosis *Diagnosis) ([]*cache.Node, bool) {
	for _, narrower := range p.rules.Narrowers {
		names, narrowed := narrower.Nodes(pod)
		if !narrowed {
			continue
		}
		diagnosis.Narrowed = append([]string{}, names...)
		diagnosis.narrowedBy = narrower.Name
		var nodes []*cache.Node
		for _, name := range names {
			if node := view.Cache.Node(name); node != nil {
				nodes = append(nodes, node)
			}
		}
		return nodes, false
	}
	return view.Cache.Nodes(), true
}

func (p *Placer) prepare(pod *cache.Pod, view View) []plugins.Check {
	checks := make([]plugins.Check, len(p.rules.Filters))
	for i := range p.rules.Filters {
		checks[i] = p.rules.Filters[i].Prepare(pod, view.Cache)
	}
	return checks
}

// nominated returns the node for which the pod has preempted others, if it fits there now: it was promised to it.
func (p *Placer) nominated(pod *cache.Pod, checks []plugins.Check, view View) string {
	name := pod.Object.Status.NominatedNodeName
	if name == "" {
		return ""
	}
	node := view.Cache.Node(name)
	if node == nil {
		return ""
	}
	if _, ok := p.check(pod, node, checks, view); !ok {
		return ""
	}
	return name
}

// check asks the filters about one node. Pods nominated to it that are not less important than pod count as there.
func (p *Placer) check(pod *cache.Pod, node *cache.Node, checks []plugins.Check, view View) (Failure, bool) {
	if promised := view.Nominated.on(node.Name, pod); len(promised) > 0 {
		node = node.With(promised, nil)
	}
	return runChecks(node, checks)
}

func runChecks(node *cache.Node, checks []plugins.Check) (Failure, bool) {
	for i, check := range checks {
		if check == nil {
			continue
		}
		if verdict := check(node); !verdict.Passed() {
			return Failure{Node: node.Name, Verdict: verdict, filter: i}, false
		}
	}
	return Failure{}, true
}

// helpers fills in which changes may help: those of the rules that failed, and a new node.
func (p *Placer) helpers(diagnosis *Diagnosis) {
	diagnosis.HelpedBy = cache.NodeAdded
	for _, failure := range diagnosis.Failures {
		diagnosis.HelpedBy |= p.rules.Filters[failure.filter].HelpedBy
	}
}

// best ranks the nodes and returns the first.
func (p *Placer) best(pod *cache.Pod, nodes []*cache.Node, view View) *cache.Node {
	if len(nodes) == 1 {
		return nodes[0]
	}
	total := make([]int64, len(nodes))
	for _, scorer := range p.rules.Scorers {
		scores := scorer.Prepare(pod, nodes, view.Cache)
		if scores != nil && len(scores) != len(nodes) {
			panic(fmt.Sprintf("scorer %s gave %d scores for %d nodes", scorer.Name, len(scores), len(nodes)))
		}
		for i, score := range scores {
			total[i] += score * scorer.Weight
		}
	}
	best := 0
	for i := 1; i < len(nodes); i++ {
		if total[i] > total[best] || total[i] == total[best] && p.rank(pod.UID, nodes[i].Name) < p.rank(pod.UID, nodes[best].Name) {
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

// nodesToFind is how many fitting nodes are enough to choose well among: all of up to 100, then a part that shrinks from
// a half to a twentieth as clusters grow.
func nodesToFind(all int) int {
	if all <= 100 {
		return all
	}
	percent := max(50-all/125, 5)
	return max(all*percent/100, 100)
}
