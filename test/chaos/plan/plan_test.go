package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const length = 2 * time.Second

func made(seed uint64, kind Kind) Plan {
	return Make(rand.New(rand.NewPCG(seed, 0)), kind, false, "", length)
}

func policed(seed uint64, kind Kind) Plan {
	return Make(rand.New(rand.NewPCG(seed, 0)), kind, true, "", length)
}

func TestTheSameSeedMakesTheSamePlan(t *testing.T) {
	for _, kind := range []Kind{Parts, Process} {
		if diff := cmp.Diff(made(7, kind), made(7, kind)); diff != "" {
			t.Errorf("two plans of seed 7 on %s differ:\n%s", kind, diff)
		}
		if cmp.Equal(made(7, kind), made(8, kind)) {
			t.Errorf("the plans of seeds 7 and 8 on %s are the same", kind)
		}
		if diff := cmp.Diff(policed(7, kind), policed(7, kind)); diff != "" {
			t.Errorf("two plans of seed 7 on %s with policies differ:\n%s", kind, diff)
		}
	}
}

func TestPlansAreInOrderAndEndInTime(t *testing.T) {
	for seed := range uint64(50) {
		for _, kind := range []Kind{Parts, Process} {
			p := made(seed, kind)
			if p.Steps[0].Op != CreateSet {
				t.Errorf("seed %d: the first step is %q, want a DaemonSet to be made", seed, p.Steps[0].Op)
			}
			if !slices.IsSortedFunc(p.Steps, func(a, b Step) int { return int(a.At - b.At) }) {
				t.Errorf("seed %d: the steps are not in the order of time", seed)
			}
			inTime(t, p, length)
			p = policed(seed, kind)
			first := CreateSet
			if p.Trouble == BadStable {
				first = CreatePoorSet
			}
			if p.First[0].Op != MakePolicy || p.First[1].Op != first {
				t.Errorf("seed %d: with policies the first steps are %v, want a policy and a DaemonSet", seed, p.First)
			}
			inTime(t, p, policedLength*length)
		}
	}
}

func inTime(t *testing.T, p Plan, length time.Duration) {
	t.Helper()
	for _, s := range p.Steps {
		if s.At > length || s.At+s.For > 2*length {
			t.Errorf("step %q ends after the round", s)
		}
	}
}

// TestEverythingComesUp sees to it that no operation is forgotten in the lists of
// chances, and that faults strike where they can.
func TestEverythingComesUp(t *testing.T) {
	seen, struck := map[Kind]map[Op]bool{Parts: {}, Process: {}}, map[string]bool{}
	for seed := range uint64(300) {
		for _, kind := range []Kind{Parts, Process} {
			for _, s := range made(seed, kind).Steps {
				seen[kind][s.Op] = true
				struck[s.Loop] = true
				if s.Fault() != slices.ContainsFunc(slices.Concat(partFaults, processFaults, apartFaults), func(c chance) bool { return c.op == s.Op }) {
					t.Fatalf("%q is taken for a fault, or is one and is not", s.Op)
				}
			}
		}
	}
	with := map[Op]bool{}
	for seed := range uint64(300) {
		for _, s := range policed(seed, Parts).Steps {
			with[s.Op] = true
		}
	}
	for _, c := range policedUsers {
		if !with[c.op] {
			t.Errorf("%q never comes up with policies", c.op)
		}
	}
	for kind, faults := range map[Kind][]chance{Parts: partFaults, Process: slices.Concat(processFaults, apartFaults)} {
		for _, c := range slices.Concat(users, faults) {
			if !seen[kind][c.op] {
				t.Errorf("%q never comes up on %s", c.op, kind)
			}
		}
	}
	for _, s := range processFaults {
		if seen[Parts][s.op] {
			t.Errorf("%q comes up on %s, which has no process", s.op, Parts)
		}
	}
	for _, name := range Loops {
		if !struck[name] {
			t.Errorf("nothing ever happens to %s", name)
		}
	}
}

// Each kind of trouble comes up, and is made of what it is about.
func TestTroubles(t *testing.T) {
	about := map[Trouble]Op{BadStable: PoorNodes, DeadNodes: SilenceNode, LostRevisions: DeleteRevision, LongWords: RefuseNode, Content: BadContent}
	seen := map[Trouble]int{}
	for seed := range uint64(100) {
		p := policed(seed, Parts)
		seen[p.Trouble]++
		has := func(op Op) bool { return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Op == op }) }
		if op := about[p.Trouble]; op != "" && !has(op) {
			t.Errorf("seed %d is about %s, and nobody does %q", seed, p.Trouble, op)
		}
		if p.Trouble == DeadNodes && has(WakeNode) {
			t.Errorf("seed %d: dead nodes come back before the end", seed)
		}
	}
	if len(seen) != len(Troubles) {
		t.Errorf("of %v come up %v", Troubles, seen)
	}
}

// Variants are made up last: a round is as it was without them, and all that users do to them comes up.
func TestVary(t *testing.T) {
	seen, kinds, loops := map[Op]bool{}, map[string]int{}, map[string]bool{}
	for seed := range uint64(200) {
		for _, kind := range []Kind{Parts, Process} {
			policies := seed%2 == 0
			plain := Make(rand.New(rand.NewPCG(seed, 0)), kind, policies, "", length)
			dice := rand.New(rand.NewPCG(seed, 0))
			p := Make(dice, kind, policies, "", length)
			p.Vary(dice, length, Never)
			if diff := cmp.Diff(plain, p); diff != "" {
				t.Fatalf("seed %d is another one without variants:\n%s", seed, diff)
			}
			p.Vary(dice, length, Always)
			for _, s := range slices.Concat(p.First, p.Steps) {
				seen[s.Op] = true
			}
			for _, loop := range p.Runs() {
				loops[loop] = true
			}
			p.First = slices.DeleteFunc(p.First, func(s Step) bool { return about(s.Op) })
			p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return about(s.Op) || s.Loop == StartupLoop })
			for name, is := range map[string]bool{"varied": p.Varied, "ramps": p.Ramps, "startup": p.Startup, "rigid": p.Rigid, "fetches": p.Fetches, "by pods": p.ByPods} {
				if is {
					kinds[name]++
				}
			}
			if !p.Startup || (p.Ramps || p.Fetches) && !policies {
				t.Errorf("seed %d has no NodeStartup, or ramps or fetching without policies", seed)
			}
			if p.ByPods && !p.Fetches || p.Fetches && kind == Process && p.ByPods != p.Apart {
				t.Errorf("seed %d on %s has images fetched: %v, by pods: %v, a controller apart: %v", seed, kind, p.Fetches, p.ByPods, p.Apart)
			}
			p.Varied, p.Ramps, p.Startup, p.Rigid, p.Fetches, p.ByPods = false, false, false, false, false, false
			if diff := cmp.Diff(plain, p); diff != "" {
				t.Errorf("seed %d is another one beside its variants:\n%s", seed, diff)
			}
		}
	}
	for _, op := range []Op{LeaveTogether, ReturnTogether, BringBack, FillDisks} {
		if !seen[op] {
			t.Errorf("%q never comes up", op)
		}
	}
	if len(loops) != len(Loops)+1 {
		t.Errorf("the loops are %v", loops)
	}
	for _, c := range varying {
		if !seen[c.op] {
			t.Errorf("%q never comes up", c.op)
		}
	}
	if kinds["varied"] != 400 || kinds["ramps"] == 0 || kinds["fetches"] == 0 || kinds["by pods"] < 30 || kinds["startup"] == 0 || kinds["rigid"] < 100 || kinds["rigid"] > 170 {
		t.Errorf("of 400 rounds %v", kinds)
	}
}

func about(op Op) bool {
	return op == FillDisks || op == LeaveTogether || op == ReturnTogether || op == BringBack || slices.ContainsFunc(varying, func(c chance) bool { return c.op == op })
}
