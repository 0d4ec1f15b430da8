package survey

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/toleration"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Candidate is the pod that a template makes for a node.
func Candidate(template *corev1.PodTemplateSpec, namespace, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	p.Namespace, p.Name, p.UID = namespace, "new", "new"
	p.Spec.Tolerations = placement.Tolerations(&template.Spec)
	p.Spec.Affinity = placement.PinToNode(template.Spec.Affinity, node)
	return p
}

// Room is a question about one template, for many nodes.
type Room struct {
	survey   *Survey
	question *fit.Question
}

// Room asks where the pods of a template fit. Which nodes it selects is another question.
func (s *Survey) Room(template *corev1.PodTemplateSpec, namespace string) *Room {
	p := Candidate(template, namespace, "")
	p.Spec.NodeSelector, p.Spec.NodeName = nil, ""
	p.Spec.Affinity.NodeAffinity = nil
	return &Room{s, s.Cluster().Ask(fit.NewPod(p))}
}

// Reasons says all that keeps a pod of the template from fitting on the node, once the given pods have left, and pods
// that are there have become the resized ones; nothing if it fits.
func (r *Room) Reasons(nodeName string, leaving []*corev1.Pod, resized ...*corev1.Pod) []string {
	return r.survey.reasons(r.question, nodeName, leaving, resized...)
}

// Reasons says all that keeps the pod from fitting on the node, once the given pods have left; nothing if it fits.
func (s *Survey) Reasons(p *corev1.Pod, nodeName string, leaving []*corev1.Pod) []string {
	return s.reasons(s.Cluster().Ask(fit.NewPod(p)), nodeName, leaving)
}

func (s *Survey) reasons(
	question *fit.Question, nodeName string, leaving []*corev1.Pod, resized ...*corev1.Pod,
) (out []string) {
	node := s.Cluster().Node(nodeName)
	if node == nil {
		return []string{"there is no node " + nodeName}
	}
	var trial fit.Trial
	for _, l := range leaving {
		if known := node.Pods[l.UID]; known != nil {
			trial.Removed = append(trial.Removed, known)
		}
	}
	for _, p := range resized {
		if known := node.Pods[p.UID]; known != nil {
			trial.Removed, trial.Added = append(trial.Removed, known), append(trial.Added, fit.NewPod(p))
		}
	}
	for _, r := range question.All(node, trial) {
		out = append(out, s.reason(&r, nodeName, leaving))
	}
	return out
}

// reason says a reason so that a person knows what to do about it.
func (s *Survey) reason(r *fit.Reason, nodeName string, leaving []*corev1.Pod) string {
	switch r.Rule {
	case fit.Room:
		return short(r)
	case fit.HostPortsFree:
		text := "host port " + r.About + " is taken"
		if who := s.holder(r.About, nodeName, leaving); who != "" {
			text += " by " + who
		}
		return text
	case fit.TaintToleration:
		return "taint " + r.About + " is not tolerated"
	case fit.Unschedulable:
		return "the node is cordoned"
	}
	text := strings.TrimPrefix(r.Text, "node(s) ")
	if r.About != "" {
		text += " (" + r.About + ")"
	}
	return text
}

// short says how much of a resource is missing.
func short(r *fit.Reason) string {
	if r.About == string(corev1.ResourcePods) {
		return fmt.Sprintf("the node takes no further pod (%s)", r.Text)
	}
	amount := func(n int64) string {
		n = max(n, 0)
		if r.About == string(corev1.ResourceCPU) {
			return resource.NewMilliQuantity(n, resource.DecimalSI).String()
		}
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	lacks := amount(r.Wanted - max(r.Free, 0))
	return fmt.Sprintf("%s %s short (wants %s, %s free)", r.About, lacks, amount(r.Wanted), amount(r.Free))
}

// holder names the pod that has a host port.
func (s *Survey) holder(port, nodeName string, leaving []*corev1.Pod) string {
	for _, p := range s.onNode[nodeName] {
		if pod.IsTerminal(p) || contains(leaving, p) {
			continue
		}
		for i := range p.Spec.Containers {
			for _, have := range p.Spec.Containers[i].Ports {
				protocol := have.Protocol
				if protocol == "" {
					protocol = corev1.ProtocolTCP
				}
				if have.HostPort > 0 && fmt.Sprintf("%d/%s", have.HostPort, protocol) == port {
					return p.Namespace + "/" + p.Name
				}
			}
		}
	}
	return ""
}

func contains(pods []*corev1.Pod, p *corev1.Pod) bool {
	for _, o := range pods {
		if o.UID == p.UID {
			return true
		}
	}
	return false
}

// unselected says all that keeps a template away from a node.
func unselected(spec *corev1.PodSpec, n *corev1.Node) (out []string) {
	if n == nil {
		return []string{"there is no such node"}
	}
	if spec.NodeName != "" && spec.NodeName != n.Name {
		out = append(out, "the template names node "+spec.NodeName)
	}
	for _, key := range sortedKeys(spec.NodeSelector) {
		want := spec.NodeSelector[key]
		have, there := n.Labels[key]
		switch {
		case !there:
			out = append(out, fmt.Sprintf("nodeSelector %s=%s: the node has no label %s", key, want, key))
		case have != want:
			out = append(out, fmt.Sprintf("nodeSelector %s=%s: the node has %s=%s", key, want, key, have))
		}
	}
	if terms := requiredTerms(spec); len(terms) > 0 && !affinityMatches(spec, n) {
		out = append(out, "required node affinity: the node meets none of: "+strings.Join(terms, "; or "))
	}
	tolerations := placement.Tolerations(spec)
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; t.Effect != corev1.TaintEffectPreferNoSchedule && !toleration.Covered(t, tolerations) {
			out = append(out, "taint "+t.ToString()+" is not tolerated")
		}
	}
	if len(out) == 0 {
		out = append(out, byTheRules)
	}
	return out
}

// byTheRules is said where nothing else is known.
const byTheRules = "its placement rules say so"
