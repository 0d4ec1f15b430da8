package ruleset_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/network/proxy/changes"
	"github.com/everynode/everynode/internal/network/proxy/ruleset"
)

// TestScripts runs what Services and slices say through both cores. Commands:
//
//	apply    objects in YAML, parted by ---; answers with what changes of the rules
//	delete   kind namespace/name, one a line; the same
//	whole    all rules of Services
//
// The node is node-1 in zone-1, with the pods of 10.244.1.0/24.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		tracker := changes.New("node-1")
		tracker.Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "zone-1"}},
			Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}})
		state := ruleset.New(ruleset.Node{Pods: tracker.Pods()})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "apply":
				for _, document := range strings.Split(d.Input, "\n---\n") {
					apply(t, tracker, document)
				}
			case "delete":
				for line := range strings.Lines(d.Input) {
					kind, name, _ := strings.Cut(strings.TrimSpace(line), " ")
					remove(t, tracker, kind, nameOf(name))
				}
			case "whole":
				whole := state.Whole()
				return show(ruleset.Delta{Chains: whole.Chains, Memories: whole.Memories, Add: whole.Elements})
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return show(state.Update(tracker.Take()))
		})
	})
}

func nameOf(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func apply(t *testing.T, tracker *changes.Tracker, document string) {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		t.Fatal(err)
	}
	switch kind.Kind {
	case "Service":
		svc := &corev1.Service{}
		if err := yaml.UnmarshalStrict([]byte(document), svc); err != nil {
			t.Fatal(err)
		}
		tracker.Service(types.NamespacedName{Namespace: "default", Name: svc.Name}, svc)
	case "EndpointSlice":
		slice := &discoveryv1.EndpointSlice{}
		if err := yaml.UnmarshalStrict([]byte(document), slice); err != nil {
			t.Fatal(err)
		}
		tracker.Slice(types.NamespacedName{Namespace: "default", Name: slice.Name}, slice)
	default:
		t.Fatalf("unknown kind %q", kind.Kind)
	}
}

func remove(t *testing.T, tracker *changes.Tracker, kind string, name types.NamespacedName) {
	t.Helper()
	switch kind {
	case "service":
		tracker.Service(name, nil)
	case "slice":
		tracker.Slice(name, nil)
	default:
		t.Fatalf("unknown kind %q", kind)
	}
}

// show writes a delta, or nothing changes.
func show(d ruleset.Delta) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d.Memories)) {
		fmt.Fprintf(&b, "memory %s %ds\n", name, d.Memories[name])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Chains)) {
		verb := "chain"
		if d.New[name] {
			verb = "new chain"
		}
		fmt.Fprintf(&b, "%s %s\n", verb, name)
		for _, rule := range d.Chains[name] {
			fmt.Fprintf(&b, "  %s\n", rule)
		}
	}
	for _, k := range d.Delete {
		fmt.Fprintf(&b, "delete %s { %s }\n", k.In, k.Key)
	}
	for _, k := range ruleset.SortedKeys(d.Add) {
		fmt.Fprintf(&b, "add %s { %s } %s\n", k.In, k.Key, d.Add[k])
	}
	for _, name := range d.GoneChains {
		fmt.Fprintf(&b, "gone chain %s\n", name)
	}
	for _, name := range d.GoneMemories {
		fmt.Fprintf(&b, "gone memory %s\n", name)
	}
	for _, f := range d.Flows {
		to := "node"
		if f.To.IsValid() {
			to = f.To.String()
		}
		fmt.Fprintf(&b, "forget %s:%d except to %v\n", to, f.Port, texts(f.Endpoints))
	}
	if b.Len() == 0 {
		return "nothing changes\n"
	}
	return b.String()
}

func texts(list []netip.AddrPort) (out []string) {
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}
