package rolloutpolicy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
)

func compiled(t testing.TB, spec v1alpha1.RolloutPolicySpec) *Policy {
	t.Helper()
	p, err := Compile(&spec, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// naive finds every node's step from nothing: wave by wave, over all that are left.
func naive(p *Policy, nodes map[string]map[string]string) map[string]Step {
	out, left := map[string]Step{}, slices.Sorted(maps.Keys(nodes))
	for i := range p.Waves {
		w := &p.Waves[i]
		taken := map[string]Step{}
		switch {
		case w.Count > 0 || w.Percent > 0:
			for _, n := range naiveSieve(w, left, nodes) {
				taken[n] = Step{Wave: i}
			}
		case w.Each != "":
			for _, n := range left {
				value, has := nodes[n][w.Each]
				taken[n] = Step{Wave: i, Value: value, None: !has}
			}
		default:
			var matching []string
			for _, n := range left {
				if w.Nodes == nil || w.Nodes.Matches(labels.Set(nodes[n])) {
					taken[n] = Step{Wave: i}
					matching = append(matching, n)
				}
			}
			if w.Ramp != nil {
				naiveRamp(i, w, matching, taken)
			}
		}
		maps.Copy(out, taken)
		left = slices.DeleteFunc(left, func(n string) bool { _, is := taken[n]; return is })
	}
	return out
}

// naiveRamp deals a wave's nodes out to its steps, in the order of their hashes.
func naiveRamp(wave int, w *Wave, nodes []string, taken map[string]Step) {
	s := newSieve(w)
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Compare(s.rank(a), s.rank(b)) })
	for part := 1; len(nodes) > 0; part++ {
		size := len(nodes)
		if part <= len(w.Ramp) {
			size = min(size, w.Ramp[part-1])
		}
		for _, n := range nodes[:size] {
			taken[n] = Step{Wave: wave, Part: part}
		}
		nodes = nodes[size:]
	}
}

func naiveSieve(w *Wave, left []string, nodes map[string]map[string]string) (taken []string) {
	s := newSieve(w)
	pools := map[string][]string{}
	for _, n := range left {
		v := nodes[n][w.SpreadBy]
		pools[v] = append(pools[v], n)
	}
	for _, p := range pools {
		slices.SortFunc(p, func(a, b string) int {
			if s.rank(a) < s.rank(b) {
				return -1
			}
			return 1
		})
	}
	if w.Percent > 0 {
		for _, p := range pools {
			taken = append(taken, p[:(w.Percent*len(p)+99)/100]...)
		}
		return taken
	}
	order := slices.SortedFunc(maps.Keys(pools), func(a, b string) int {
		if s.rank("="+a) < s.rank("="+b) {
			return -1
		}
		return 1
	})
	for round := 0; len(taken) < min(w.Count, len(left)); round++ {
		for _, v := range order {
			if round < len(pools[v]) && len(taken) < w.Count {
				taken = append(taken, pools[v][round])
			}
		}
	}
	return taken
}

func TestFleetAgreesWithCountingFromNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var spec v1alpha1.RolloutPolicySpec
		for i := range rapid.IntRange(0, 4).Draw(t, "waves") {
			w := v1alpha1.Wave{Name: fmt.Sprintf("w%d", i)}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1:
				w.Count = ptr.To(rapid.Int32Range(1, 6).Draw(t, "count"))
			case 2, 3:
				w.Percent = ptr.To(rapid.Int32Range(1, 100).Draw(t, "percent"))
			case 4:
				w.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"a": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "value")}}
				if rapid.Bool().Draw(t, "ramp") {
					w.Ramp = &v1alpha1.Ramp{From: ptr.To(rapid.Int32Range(1, 3).Draw(t, "from")), Factor: ptr.To(rapid.Int32Range(2, 3).Draw(t, "factor"))}
				}
			case 5:
				w.Each = "b"
			}
			if (w.Count != nil || w.Percent != nil) && rapid.Bool().Draw(t, "spread") {
				w.SpreadBy = "b"
			}
			if neverReached(spec.Waves, &w) == "" {
				spec.Waves = append(spec.Waves, w)
			}
		}
		p, err := Compile(&spec, time.LoadLocation)
		if err != nil {
			t.Fatal(err)
		}
		f, nodes, steps := NewFleet(p), map[string]map[string]string{}, map[string]Step{}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			name := fmt.Sprintf("node-%d", rapid.IntRange(0, 14).Draw(t, "node"))
			var changed []string
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				delete(nodes, name)
				delete(steps, name)
				changed = f.Delete(name)
			} else {
				labels := map[string]string{}
				for _, k := range []string{"a", "b"} {
					if v := rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, k); v != "" {
						labels[k] = v
					}
				}
				nodes[name] = labels
				changed = f.Set(name, labels)
			}
			want := naive(p, nodes)
			for _, n := range changed {
				now, _ := f.Step(n)
				if was, had := steps[n]; had && was == now {
					t.Fatalf("%s is told as changed and is not: %v", n, now)
				}
				steps[n] = now
			}
			if !maps.Equal(want, steps) {
				t.Fatalf("steps by what was told as changed %v\nwant %v", steps, want)
			}
			sizes := map[Step]int{}
			for n, s := range want {
				if have, _ := f.Step(n); have != s {
					t.Fatalf("%s is in %v, want %v", n, have, s)
				}
				sizes[s]++
			}
			if !maps.Equal(sizes, f.steps) || f.Len() != len(nodes) {
				t.Fatalf("sizes %v, want %v", f.steps, sizes)
			}
			parts := make([]int, len(p.Waves))
			for s := range sizes {
				parts[s.Wave]++
			}
			if !slices.Equal(parts, f.parts) {
				t.Fatalf("the waves make %v steps, want %v", f.parts, parts)
			}
		}
	})
}

func TestFewNodesMoveWhenOneComes(t *testing.T) {
	p := compiled(t, v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{
		{Name: "canary", Count: ptr.To[int32](5)}, {Name: "some", Percent: ptr.To[int32](10), SpreadBy: "zone"},
	}})
	f := NewFleet(p)
	moved, most := 0, 0
	for i := range 3000 {
		n := len(f.Set(fmt.Sprintf("node-%d", i), map[string]string{"zone": fmt.Sprint(i % 3)}))
		moved += n
		most = max(most, n)
	}
	if most > 5 || moved > 2*3000 {
		t.Errorf("3000 arrivals moved %d nodes, one of them %d", moved, most)
	}
}

func TestARampMovesOneNodeOfAStepAtMost(t *testing.T) {
	f := NewFleet(compiled(t, v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{{Name: "all", Nodes: &metav1.LabelSelector{}, Ramp: &v1alpha1.Ramp{}}}}))
	for i := range 3000 {
		if moved := f.Set(fmt.Sprintf("node-%d", i), nil); len(moved) > len(f.Steps()) {
			t.Fatalf("arrival %d moved %v", i, moved)
		}
	}
	var sizes []int
	for _, s := range f.Steps() {
		sizes = append(sizes, f.Size(s))
	}
	if want := []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 953}; !slices.Equal(sizes, want) {
		t.Errorf("the steps have %v nodes, want %v", sizes, want)
	}
}

func TestTooManySteps(t *testing.T) {
	p := compiled(t, v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{{Name: "canary", Count: ptr.To[int32](1)}, {Name: "hosts", Each: "host"}}})
	f := NewFleet(p)
	for i := range MaxSteps + 1 {
		if why := f.TooFine(); why != "" {
			t.Fatalf("with %d nodes: %s", i, why)
		}
		f.Set(fmt.Sprint("n", i), map[string]string{"host": fmt.Sprint("n", i)})
	}
	const want = "the policy makes 1001 steps of this fleet, and a rollout has 1000 at most: give wave hosts, which makes 1000, a label with fewer values than host"
	f.Delete("n1")
	if f.TooFine() != "" {
		t.Errorf("without one of them: %s", f.TooFine())
	}
	f.Set("n1", map[string]string{"host": "x"})
	if f.TooFine() != want {
		t.Errorf("got %q\nwant %q", f.TooFine(), want)
	}
}

func TestStepNames(t *testing.T) {
	p := compiled(t, v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{
		{Name: "canary", Count: ptr.To[int32](1)}, {Name: "old", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"os": "old"}}, Ramp: &v1alpha1.Ramp{}},
		{Name: "zones", Each: "zone"},
	}})
	f := NewFleet(p)
	for i := range 10 {
		f.Set(fmt.Sprint("old", i), map[string]string{"os": "old"})
	}
	for i, zone := range []string{"b", "a", "", "b"} {
		labels := map[string]string{"zone": zone}
		if zone == "" {
			labels = nil
		}
		f.Set(fmt.Sprint("n", i), labels)
	}
	f.Set("n9", map[string]string{"zone": ""}) // an empty value is one, too
	var names []string
	for _, s := range f.Steps() {
		name := p.StepName(s)
		names = append(names, name)
		if back, ok := p.StepNamed(name); !ok || back != s {
			t.Errorf("%s is read as %v", name, back)
		}
	}
	if got := strings.Join(names, " "); !strings.HasPrefix(got, "canary old/1 old/2 old/3 old/4 zones/") || !strings.HasSuffix(got, "zones/(none)") {
		t.Errorf("the steps are %s", got)
	}
	if before, ok := p.StepNamed("old"); !ok || before.Compare(f.Steps()[1]) >= 0 || before.Compare(f.Steps()[0]) <= 0 {
		t.Errorf("the name of a ramp is read as %v", before)
	}
	for _, name := range []string{"zones", "canary/a", "old/", "old/0", "old/21", "old/x", "other", ""} {
		if _, ok := p.StepNamed(name); ok {
			t.Errorf("%q names a step", name)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		limit            intstr.IntOrString
		total, allowed   int
		least, exceeding int // the smallest number that is more than the limit
	}{
		{intstr.FromString("10%"), 15, 2, 0, 2},
		{intstr.FromString("5%"), 3, 1, 0, 1},
		{intstr.FromString("100%"), 3, 3, 0, 4},
		{intstr.FromInt32(2), 100, 2, 0, 3},
		{intstr.FromString("0%"), 10, 0, 0, 1},
	} {
		l := LimitOf(c.limit)
		if got := l.Of(c.total); got != c.allowed {
			t.Errorf("%s of %d is %d, want %d", l, c.total, got, c.allowed)
		}
		if l.Exceeded(c.exceeding-1, c.total) || !l.Exceeded(c.exceeding, c.total) {
			t.Errorf("%s of %d is not exceeded from %d on", l, c.total, c.exceeding)
		}
	}
}
