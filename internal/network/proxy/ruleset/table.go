package ruleset

import (
	"maps"
	"slices"
	"strings"
)

// Key names an element: the map or set it is in, and its key in parts.
type Key struct {
	In  string
	Key string // parts joined by " . "
}

// Parts are the key's parts.
func (k Key) Parts() []string { return strings.Split(k.Key, " . ") }

// Table is a collection of rules.
type Table struct {
	// Chains are the rules of each chain.
	Chains map[string][]string
	// Memories are sets of client addresses, each with the seconds it remembers one.
	Memories map[string]int32
	// Elements are the elements of maps, with their verdicts, and of sets, with nothing.
	Elements map[Key]string
}

func newTable() Table {
	return Table{Chains: map[string][]string{}, Memories: map[string]int32{}, Elements: map[Key]string{}}
}

// Delta is a change of rules. To apply it in one transaction, in this order: add the
// new memories and chains, empty and fill the changed chains, empty the gone ones,
// delete and add elements, delete gone chains and memories.
type Delta struct {
	// Chains are new or changed chains with all their rules; New are the new ones' names.
	Chains map[string][]string
	New    map[string]bool
	// Memories are new.
	Memories map[string]int32
	// Add are new elements, and changed ones, which are also in Delete.
	Add    map[Key]string
	Delete []Key
	// GoneChains and GoneMemories are no longer referred to.
	GoneChains, GoneMemories []string
	// Flows are to be looked through afterwards.
	Flows []Flow
}

// Empty says that no rule changes.
func (d Delta) Empty() bool {
	return len(d.Chains)+len(d.Memories)+len(d.Add)+len(d.Delete)+len(d.GoneChains)+len(d.GoneMemories) == 0
}

func newDelta() Delta {
	return Delta{Chains: map[string][]string{}, New: map[string]bool{}, Memories: map[string]int32{},
		Add: map[Key]string{}}
}

// replaceObjects notes what turns one Service's chains and memories into others.
func (d *Delta) replaceObjects(old, now Table) {
	for name, rules := range now.Chains {
		before, known := old.Chains[name]
		if !known {
			d.New[name] = true
		}
		if !known || !slices.Equal(before, rules) {
			d.Chains[name] = rules
		}
	}
	for name := range old.Chains {
		if _, still := now.Chains[name]; !still {
			d.GoneChains = append(d.GoneChains, name)
		}
	}
	for name, seconds := range now.Memories {
		if _, known := old.Memories[name]; !known {
			d.Memories[name] = seconds
		}
	}
	for name := range old.Memories {
		if _, still := now.Memories[name]; !still {
			d.GoneMemories = append(d.GoneMemories, name)
		}
	}
}

// setElement notes that an element now has another verdict, or exists, or does not.
func (d *Delta) setElement(k Key, before, now claim) {
	if before == now {
		return
	}
	if before.owner != "" {
		d.Delete = append(d.Delete, k)
	}
	if now.owner != "" {
		d.Add[k] = now.verdict
	}
}

// sort makes the delta the same for the same change.
func (d *Delta) sort() {
	slices.Sort(d.GoneChains)
	slices.Sort(d.GoneMemories)
	slices.SortFunc(d.Delete, compareKeys)
	slices.SortFunc(d.Flows, compareFlows)
}

func compareKeys(a, b Key) int {
	if c := strings.Compare(a.In, b.In); c != 0 {
		return c
	}
	return strings.Compare(a.Key, b.Key)
}

// SortedKeys are the keys of elements in order.
func SortedKeys(elements map[Key]string) []Key {
	return slices.SortedFunc(maps.Keys(elements), compareKeys)
}
