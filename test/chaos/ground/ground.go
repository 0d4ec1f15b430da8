// Package ground says what the nodes of a round are like: their labels and sizes, and what ails pods on them.
package ground

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/test/chaos/author"
	"github.com/everynode/everynode/test/chaos/history/wish"
	"github.com/everynode/everynode/test/chaos/plan"
	"github.com/everynode/everynode/test/chaos/tailor"
)

// What is with a node, and an image that does not work on such nodes.
const (
	PoorLabel = wish.UserKey + "poor"
	FullLabel = wish.UserKey + "full"
	PoorImage = "everynode.io/demo:poor"
	SlowImage = "everynode.io/demo:slow"
)

// places are the labels of the nodes in rounds with policies, and what ails pods with PoorImage on poor nodes.
const places = `
labels:
- {key: topology.kubernetes.io/zone, values: [a, b, c]}
- {key: rack, values: [r1, r2, r3, r4]}
- {key: fleet, values: [canary, others, others, others, others]}
faults:
- name: poor nodes
  nodes: {matchLabels: {` + PoorLabel + `: "yes"}}
  pods: {image: "` + PoorImage + `"}
  crash: {after: 50ms, exitCode: 3}
`

// slowPulls have the nodes of two racks take their time for an image, so that others have fetched it before them, and
// those with full disks not pull it at all.
const slowPulls = `- name: slow pulls
  nodes: {matchExpressions: [{key: rack, operator: In, values: [r1, r2]}]}
  pods: {image: "` + SlowImage + `"}
  slowPull: {takes: 3s}
- name: full disks
  nodes: {matchLabels: {` + FullLabel + `: "yes"}}
  pods: {image: "` + SlowImage + `"}
  pullError: {message: "write /var/lib: no space left on device"}
`

// Ills are the labels of nodes and what ails pods.
func Ills(p *plan.Plan) []byte {
	text := places
	if p.Trouble == plan.Content {
		text = strings.Replace(places, "faults:\n", author.Places+"faults:\n", 1) + author.Ills[1:]
	}
	if p.Varied {
		text = strings.Replace(text, "\nlabels:\n", "\nlabels:"+tailor.Places, 1) + tailor.Sizes
	}
	if !p.Policies {
		text = "\nlabels:" + tailor.Places + tailor.Sizes + "faults:\n"
	}
	if p.Rigid {
		text = strings.Replace(text, "\nlabels:", "\nlabels:"+strings.TrimSuffix(tailor.RigidPlaces, "\n"), 1)
		text = strings.Replace(text, "faults:\n", "faults:\n"+tailor.Rigid, 1)
	}
	if p.Fetches {
		text = strings.Replace(text, "faults:\n", "faults:\n"+slowPulls, 1)
	}
	return []byte(text)
}

// Mend takes from a node what users have put there that ails its pods, and reports whether there was anything.
func Mend(n *corev1.Node) bool {
	is := n.Labels[PoorLabel] != "" || n.Labels[FullLabel] != ""
	delete(n.Labels, PoorLabel)
	delete(n.Labels, FullLabel)
	return is
}
