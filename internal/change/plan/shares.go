package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/change/plan/clash"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Share is what a variant has of the fleet, now and when all is done.
type Share struct {
	// Variant is the name of a DaemonSetVariant, "" for the template as it is.
	Variant string   `json:"variant,omitempty"`
	Was     Reserved `json:"was"`
	Is      Reserved `json:"is"`
}

// Reserved is what pods request together, on how many nodes.
type Reserved struct {
	Nodes  int               `json:"nodes"`
	CPU    resource.Quantity `json:"cpu"`
	Memory resource.Quantity `json:"memory"`
}

func (r *Reserved) add(of corev1.ResourceList) {
	r.Nodes++
	r.CPU.Add(*of.Cpu())
	r.Memory.Add(*of.Memory())
}

// shares says which nodes get which variant, and what its pods request, where there are variants.
func (p *planner) shares() {
	if p.core.Variants == nil {
		return
	}
	all := map[string]*Share{}
	share := func(o *corev1.Pod) *Share {
		mark := variant.MarkOf(&o.ObjectMeta)
		if all[mark.Variant] == nil {
			all[mark.Variant] = &Share{Variant: mark.Variant}
		}
		return all[mark.Variant]
	}
	has := p.newest()
	for _, n := range p.survey.Nodes {
		if pods := p.set.Pods(n.Name); len(pods) > 0 {
			had := pods[len(pods)-1]
			share(had).Was.add(pod.Requests(had))
		}
		if is := p.core.Variants.Objects.Pod(has[n.Name].UID); is != nil {
			share(is).Is.add(pod.Requests(is))
		}
	}
	for _, s := range all {
		p.out.Variants = append(p.out.Variants, *s)
	}
	slices.SortFunc(p.out.Variants, func(a, b Share) int { return cmp.Compare(a.Variant, b.Variant) })
	if len(all) == 1 && all[""] != nil {
		p.out.Variants = nil
	}
}

// clashes finds where variants are in conflict, or cannot be had, of the nodes on which the DaemonSet is to run.
func (p *planner) clashes() {
	molds, has := p.set.Molds(), p.newest()
	if molds == nil {
		return
	}
	nodes := slices.DeleteFunc(slices.Clone(p.survey.Nodes), func(n *corev1.Node) bool {
		return !p.core.Selects(p.set.DaemonSet.UID, p.set.Revision, n.Name)
	})
	p.out.Found = clash.Find(molds, nodes, func(node string) clash.End {
		switch uid := has[node].UID; {
		case uid == "":
			return clash.None
		case p.molded[uid] != nil:
			return clash.Given
		}
		return clash.Keeps
	})
}

// total is what all shares are together.
func (f *Forecast) total() (t Share) {
	for _, s := range f.Variants {
		for _, sum := range []struct {
			to *Reserved
			of Reserved
		}{{&t.Was, s.Was}, {&t.Is, s.Is}} {
			sum.to.Nodes += sum.of.Nodes
			sum.to.CPU.Add(sum.of.CPU)
			sum.to.Memory.Add(sum.of.Memory)
		}
	}
	return t
}

// variants writes what each variant has of the fleet.
func (f *Forecast) variants(w io.Writer) {
	if len(f.Variants) == 0 {
		return
	}
	width := len("(template)")
	for _, s := range f.Variants {
		width = max(width, len(s.Variant))
	}
	row := func(name, nodes, cpu, memory string) {
		fmt.Fprintf(w, "  %-*s  %-12s  %-18s  %s\n", width, name, nodes, cpu, memory)
	}
	line := func(name string, s Share) {
		row(name, change(fmt.Sprint(s.Was.Nodes), fmt.Sprint(s.Is.Nodes)), change(s.Was.CPU.String(), s.Is.CPU.String()),
			change(s.Was.Memory.String(), s.Is.Memory.String()))
	}
	row("variant", "nodes", "cpu requested", "memory requested")
	for _, s := range f.Variants {
		line(cmp.Or(s.Variant, "(template)"), s)
	}
	line("all", f.total())
}

// change writes what something was and is.
func change(was, is string) string {
	if was == is {
		return is
	}
	return was + " -> " + is
}
