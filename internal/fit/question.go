package fit

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/fit/nodeaffinity"
	"github.com/everynode/everynode/internal/fit/volumes"
)

// Rule is one of the rules that a node must meet.
type Rule uint8

// The rules, in the order in which they are asked. The first that a node fails gives the reasons that users see, so the
// order is part of the behaviour.
const (
	Unschedulable Rule = iota
	NodeName
	TaintToleration
	NodeAffinity
	HostPortsFree
	Room
	Disks
	Volumes
	EvenSpread
	PodAffinity
	DynamicResources
)

var rules = [...]struct {
	// name is that of the rule in Kubernetes' scheduler, for messages and logs.
	name string
	// helpedBy are the changes after which a node that failed may pass.
	helpedBy Change
	check    func(*Question, *trialNode) []Reason
}{
	Unschedulable:   {"NodeUnschedulable", NodeAdded | TaintsChanged, checkUnschedulable},
	NodeName:        {"NodeName", NodeAdded, checkName},
	TaintToleration: {"TaintToleration", NodeAdded | TaintsChanged, checkTaints},
	NodeAffinity:    {"NodeAffinity", NodeAdded | LabelsChanged, checkNodeAffinity},
	HostPortsFree:   {"NodePorts", NodeAdded | PodRemoved, checkPorts},
	Room:            {"NodeResourcesFit", NodeAdded | AllocatableChanged | PodRemoved, checkRoom},
	Disks:           {"VolumeRestrictions", NodeAdded | PodRemoved, checkDisks},
	Volumes:         {"VolumeBinding", NodeAdded | LabelsChanged | PodRemoved | VolumesChanged, checkVolumes},
	EvenSpread: {"PodTopologySpread", NodeAdded | LabelsChanged | TaintsChanged | PodRemoved | PodAdded,
		checkSpread},
	PodAffinity:      {"InterPodAffinity", NodeAdded | LabelsChanged | PodRemoved | PodAdded, checkPodAffinity},
	DynamicResources: {"DynamicResources", NodeAdded | LabelsChanged | DevicesChanged, checkDevices},
}

// String is the rule's name in Kubernetes' scheduler.
func (r Rule) String() string { return rules[r].name }

// HelpedBy is the set of changes after which a node that failed the rule may pass.
func (r Rule) HelpedBy() Change { return rules[r].helpedBy }

// Reason is why a pod does not fit on a node.
type Reason struct {
	Rule Rule
	// Text says it in the words that the pod's event and condition show.
	Text string
	// About is what in particular: a taint, a port, a resource, a label; "" if the text says all.
	About string
	// Wanted and Free are amounts, if it is about one: CPU in thousandths, the rest in bytes or pieces.
	Wanted, Free int64
	// Hopeless: removing pods from the node would not help.
	Hopeless bool
}

// Trial is what is otherwise on the node that a question is about: pods that came and pods that left. Those that are
// there already, or are not there, change nothing. The zero value changes nothing.
type Trial struct {
	Added, Removed []*Pod
}

// Question is about one pod. It is good until the cluster's next event.
type Question struct {
	pod     *Pod
	cluster *Cluster

	selection *nodeaffinity.Selection // of nodes, by the pod's selector and affinity
	spread    *spread
	near      *neighbours
	claimed   *volumes.Claimed

	deviceQuestion DeviceQuestion
	askedDevices   bool
}

// Ask prepares a question about a pod that waits for a node. What a rule needs is computed when a node is the first to
// get as far as that rule.
func (c *Cluster) Ask(pod *Pod) *Question { return &Question{pod: pod, cluster: c} }

// NodesAlone reports whether what a node says to the pod follows from that node and what is on it: the pod has no claim
// and no disk, is not to be spread, and is about no other pods, nor they about it.
func (q *Question) NodesAlone() bool {
	spec := q.spec()
	// The spec says it of most pods that are about others. To count those is for the rule, if a node gets as far as it.
	if len(q.pod.claims)+len(q.pod.disks)+len(spec.ResourceClaims)+len(spec.TopologySpreadConstraints)+
		len(requiredAffinity(spec))+len(requiredAntiAffinity(spec)) > 0 {
		return false
	}
	if q.near == nil {
		q.near = q.neighbours()
	}
	return len(q.near.refused) == 0
}

// First returns the reasons of the first rule that the node fails; none if the pod fits.
func (q *Question) First(node *Node, trial Trial) []Reason {
	n := q.try(node, trial)
	for i := range rules {
		if reasons := rules[i].check(q, &n); len(reasons) > 0 {
			return reasons
		}
	}
	return nil
}

// All returns the reasons of all rules that the node fails; none if the pod fits.
func (q *Question) All(node *Node, trial Trial) []Reason {
	n := q.try(node, trial)
	var all []Reason
	for i := range rules {
		all = append(all, rules[i].check(q, &n)...)
	}
	return all
}

// trialNode is a node as it is, or would be.
type trialNode struct {
	*Node
	// added and removed are how it differs from what the cluster has counted.
	added, removed []*Pod
}

func (q *Question) try(node *Node, trial Trial) trialNode {
	if len(trial.Added) == 0 && len(trial.Removed) == 0 {
		return trialNode{Node: node}
	}
	n := trialNode{Node: node.With(trial.Added, trial.Removed)}
	for _, pod := range trial.Removed {
		if present, ok := node.Pods[pod.UID]; ok && n.Pods[pod.UID] == nil {
			n.removed = append(n.removed, present)
		}
	}
	for _, pod := range trial.Added {
		if _, ok := node.Pods[pod.UID]; !ok && n.Pods[pod.UID] == pod {
			n.added = append(n.added, pod)
		}
	}
	return n
}

// difference is by how many the pods of the trial that meet the condition differ from those counted.
func (n *trialNode) difference(meets func(*Pod) bool) (change int) {
	for _, pod := range n.added {
		if meets(pod) {
			change++
		}
	}
	for _, pod := range n.removed {
		if meets(pod) {
			change--
		}
	}
	return change
}

func (q *Question) spec() *corev1.PodSpec { return &q.pod.Object.Spec }

// fails is the answer of a rule that has one reason to give.
func fails(rule Rule, text, about string, hopeless bool) []Reason {
	return []Reason{{Rule: rule, Text: text, About: about, Hopeless: hopeless}}
}
