package row

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

var breakages = map[string]func(*Row){
	"a total":       func(r *Row) { r.totals[ready] += 5 },
	"a work set":    func(r *Row) { r.work[workReplace].Clear(false) },
	"a group":       func(r *Row) { r.groups[lacking].ReplaceOrInsert(r.cells["node-00003"]) },
	"a verdict":     func(r *Row) { r.place(r.cells["node-00003"], verdict{work: workSurge}) },
	"a timer":       func(r *Row) { r.timers.Set(&r.cells["node-00003"].timer, r.now.Add(time.Hour)) },
	"a judgement":   func(r *Row) { r.cells["node-00003"].eligibility = placement.ShouldNotRun },
	"a lost cell":   func(r *Row) { delete(r.cells, "node-00003") },
	"a lost column": func(r *Row) { r.cells["node-00003"].column = nil },
}

// broken is a row in the middle of an update in which something has drifted.
func broken(destroy func(*Row)) *Row {
	r := fleetRow(10)
	info := *r.Info()
	info.Generation, info.Revision = 2, "b"
	r.Step(start, info)
	destroy(r)
	return r
}

// fleet is a row of so many nodes, each with a daemon that is available.
func fleetRow(n int) *Row {
	cfg := Config{}.WithDefaults()
	columns, pods := map[string]*Column{}, map[types.UID]*Pod{}
	for i := range n {
		name := fmt.Sprintf("node-%05d", i)
		columns[name] = columnOf(name)
		p := &Pod{}
		p.Update(fact.Pod{UID: types.UID(name), Name: "logs-" + name, Owner: "logs", Node: name, Bound: true,
			Revision: "a",
			Ready:    true, ReadySince: start.Add(-time.Hour), Created: start.Add(-time.Hour)}, start)
		pods[p.Info().UID] = p
	}
	return New(fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a",
		Placement: placement.Compile(&corev1.PodSpec{}), Strategy: fact.Strategy{MaxUnavailable: intstr.FromInt(1)}},
		&cfg, start, columns, pods)
}

func columnOf(name string) *Column {
	return &Column{Info: fact.Node{Name: name}, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
}

// audit looks at everything, and lets something happen after each step.
func auditRow(r *Row, number uint8, meanwhile func()) []string {
	a := r.NewAudit(number, slices.Collect(maps.Keys(r.columns)))
	for a.Step(start) {
		meanwhile()
	}
	return a.Findings()
}

// start is when the rows of these tests are made.
var start = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func nothingHappens() {}

// Whatever is broken inside, the audit names it once and puts it right, and it finds what a look at the whole does.
func TestAuditMends(t *testing.T) {
	for name, destroy := range breakages {
		t.Run(name, func(t *testing.T) {
			r := broken(destroy)
			found, want := auditRow(r, 1, nothingHappens), wholeAudit(broken(destroy))
			slices.Sort(found)
			slices.Sort(want)
			if len(found) == 0 || !slices.Equal(found, want) {
				t.Errorf("it found\n%q, the whole finds\n%q", found, want)
			}
			if more := append(auditRow(r, 2, nothingHappens), wholeAudit(r)...); len(more) > 0 {
				t.Errorf("it left %q", more)
			}
		})
	}
}

// What has drifted is found by the end of the next audit, whatever happens meanwhile.
func TestAuditAmongEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := fleetRow(6)
		number := uint8(0)
		meanwhile := func() { randomRowEvent(t, r) }
		if found := auditRow(r, 1, meanwhile); len(found) > 0 {
			t.Fatalf("nothing has drifted, and it found %q", found)
		}
		r.totals[ready] += 5
		for number = 2; number < 4; number++ {
			auditRow(r, number, meanwhile)
		}
		if found := wholeAudit(r); len(found) > 0 {
			t.Fatalf("two audits left %q", found)
		}
	})
}

func randomRowEvent(t *rapid.T, r *Row) {
	name := fmt.Sprintf("node-%05d", rapid.IntRange(0, 7).Draw(t, "node"))
	change := func(is *Column) {
		e := NodeChanged{Name: name, Was: r.columns[name], Is: is}
		r.columns[name] = is
		if is == nil {
			delete(r.columns, name)
		}
		if !r.Settles(e) {
			r.Step(start, e)
		}
	}
	var pod *Pod
	if c := r.cells[name]; c != nil && len(c.pods) > 0 {
		pod = c.pods[0]
	}
	events := []string{"node comes", "node goes", "pod changes", "pod goes", "template", "turn"}
	switch rapid.SampledFrom(events).Draw(t, "event") {
	case "node comes":
		change(columnOf(name))
	case "node goes":
		change(nil)
	case "pod changes":
		if pod != nil {
			is := *pod.Info()
			is.Ready = !is.Ready
			r.Step(start, PodChanged{pod, is})
		}
	case "pod goes":
		if pod != nil {
			r.Step(start, PodWent{pod})
		}
	case "template":
		info := *r.Info()
		info.Generation++
		info.Revision = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "revision")
		r.Step(start, info)
	case "turn":
		r.Step(start, Turn{})
	}
}
