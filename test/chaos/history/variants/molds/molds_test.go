package molds

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant/formula"
)

func node(class, cpu, memory string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", Labels: map[string]string{}}}
	if class != "" {
		n.Labels[ClassLabel] = class
	}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	return n
}

// What the list says a formula gives is what CEL says.
func TestTheListOfFormulasIsTrue(t *testing.T) {
	for text, gives := range formulas {
		f, err := formula.Compile(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, n := range []*corev1.Node{node("s", "2", "4Gi"), node("l", "32", "128Gi"), node("m", "8", "32Gi"), node("", "3", "5Gi")} {
			has := map[string]float64{"cpu": cores(n), "memory": bytes(n)}
			want, err := f.On(&formula.Node{Name: n.Name, Labels: n.Labels, Allocatable: has, Capacity: has})
			got, is := gives(n)
			if fine := err == nil && want >= 0; fine != is || fine && got != want {
				t.Errorf("%s on a node of %v and %s: %v %t, CEL says %v (%v)", text, has, n.Labels[ClassLabel], got, is, want, err)
			}
		}
	}
}

func template() *corev1.PodTemplateSpec {
	t := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}
	return t
}

func cpu(name string, priority int32, text string) Variant {
	return Variant{Name: name, Priority: priority, Resources: map[string]v1alpha1.VariantResources{
		"main": {Requests: map[corev1.ResourceName]string{"cpu": text}},
	}}
}

func on(class string, v Variant) Variant {
	v.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{ClassLabel: class}}
	return v
}

func TestOutcomes(t *testing.T) {
	patched := Variant{Name: "p", Patch: []byte(Level("one"))}
	limited := cpu("b", 0, ByClass)
	limited.Resources["main"].Requests["memory"] = Memory
	limited.Resources["main"] = v1alpha1.VariantResources{
		Requests: limited.Resources["main"].Requests, Limits: map[corev1.ResourceName]string{"memory": BelowAll},
	}
	other := cpu("o", 0, ByClass)
	other.Resources = map[string]v1alpha1.VariantResources{"other": other.Resources["main"]}
	for name, c := range map[string]struct {
		all         []Variant
		cpu         int64
		level       string
		keeps, none bool
	}{
		"without variants":       {cpu: 100},
		"of another class":       {all: []Variant{on("s", cpu("a", 0, ByClass))}, cpu: 100},
		"the only one":           {all: []Variant{on("l", cpu("a", 0, ByClass))}, cpu: 400},
		"the highest priority":   {all: []Variant{cpu("a", 0, ByClass), cpu("b", 1, Fiftieth)}, cpu: 690},
		"rounded up":             {all: []Variant{cpu("a", 0, Hundredth)}, cpu: 320},
		"in conflict":            {all: []Variant{cpu("b", 1, ByClass), cpu("a", 1, Fiftieth)}, cpu: 690, keeps: true},
		"fails":                  {all: []Variant{cpu("a", 0, NoSuch)}, cpu: 100, keeps: true, none: true},
		"more than the limit":    {all: []Variant{limited}, cpu: 400, keeps: true, none: true},
		"for no container":       {all: []Variant{other}, cpu: 100, keeps: true, none: true},
		"patched":                {all: []Variant{patched}, cpu: 100, level: "one"},
		"patched to be refused":  {all: []Variant{{Name: "r", Patch: []byte(Refused)}}, cpu: 100, keeps: true},
		"amounts by a patch":     {all: []Variant{{Name: "r", Patch: []byte(Amounts)}}, cpu: 300},
		"the lower is no matter": {all: []Variant{cpu("a", 0, NoSuch), cpu("b", 1, ByClass)}, cpu: 400},
	} {
		o := For(template(), c.all, node("l", "32", "128Gi"))
		if o.CPU != c.cpu || o.Level != c.level || o.Keeps != c.keeps || o.None != c.none || o.Keeps == (o.Why == "") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestFits(t *testing.T) {
	o := For(template(), []Variant{cpu("a", 0, ByClass)}, node("l", "32", "128Gi")) // 400m
	for name, c := range map[string]struct {
		change    func(*Looks)
		want, may bool // it fits, and may be touched
	}{
		"the same":                   {func(*Looks) {}, true, false},
		"less than a tenth more":     {func(l *Looks) { l.CPU = 430 }, true, false},
		"a tenth less":               {func(l *Looks) { l.CPU = 360 }, true, true},
		"a tenth more":               {func(l *Looks) { l.CPU = 450 }, true, true},
		"more than a tenth more":     {func(l *Looks) { l.CPU = 500 }, false, true},
		"much less":                  {func(l *Looks) { l.CPU = 100 }, false, true},
		"a limit that is to go":      {func(l *Looks) { l.Limit = 64 * mebi }, false, true},
		"another patch":              {func(l *Looks) { l.Level = "one" }, false, true},
		"another restart for resize": {func(l *Looks) { l.Restart = "RestartContainer" }, false, true},
		"much more memory":           {func(l *Looks) { l.Memory = 160 * mebi }, false, true},
		"storage":                    {func(l *Looks) { l.Storage = 160 * mebi }, false, true},
	} {
		have := o.Looks
		c.change(&have)
		if o.Fits(have) != c.want {
			t.Errorf("%s: %s fits %s: %t", name, have, o.Looks, !c.want)
		}
		if o.MayChange(have) != c.may {
			t.Errorf("%s: %s may be touched for %s: %t", name, have, o.Looks, !c.may)
		}
	}
	if o.Keeps = true; !o.Fits(Looks{}) || o.MayChange(Looks{}) {
		t.Error("a pod that stays as it is does not fit")
	}
}

func dsv(name string, generation int64, priority int32, text string) *v1alpha1.DaemonSetVariant {
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("v-" + name), Generation: generation}}
	of := cpu(name, priority, text)
	v.Spec.Priority, v.Spec.Resources = priority, of.Resources
	return v
}

// pod is one that has so much cpu.
func pod(milli int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}, Spec: template().Spec}
	p.Spec.Containers[0].Resources.Requests["cpu"] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	return p
}

// The variants of a DaemonSet that is made after them are its own from its first moment on.
func TestVariantsOfANewDaemonSet(t *testing.T) {
	var b Book
	b.Add(1, node("l", "32", "128Gi"), false)
	b.Add(2, dsv("a", 1, 0, ByClass), false)
	b.Add(5, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "d"}}, false)
	for milli, want := range map[int64]bool{100: true, 400: false} {
		if got := b.Differs("d", pod(milli), template(), "n", 6, 3, 9); got != want {
			t.Errorf("a pod with %dm of cpu differs: %t, want %t", milli, got, want)
		}
	}
}

func TestBook(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "d"}}
	small := node("s", "2", "4Gi")
	var b Book
	if b.Differs("d", pod(1), template(), "n", 0, 0, 9) {
		t.Error("a pod differs without variants")
	}
	b.Add(1, set, false)
	b.Add(2, small, false)
	b.Add(4, dsv("a", 1, 0, ByClass), false)
	b.Add(6, dsv("a", 2, 0, NoSuch), false)
	b.Add(7, dsv("a", 2, 0, NoSuch), false) // its status
	large := node("l", "32", "128Gi")
	b.Add(8, large, false)
	b.Add(10, dsv("a", 2, 0, NoSuch), true)
	store := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{StoredLabel: "x"}},
		Data: runtime.RawExtension{Raw: []byte(`{"variants":[{"name":"a","resources":{"main":{"requests":{"cpu":"` + Greedy + `"}}}}]}`)}}
	b.Add(12, store, false)
	for _, c := range []struct {
		milli     int64
		low, high int64
		of        string
		want      bool
	}{
		{100, 3, 3, "", false}, {200, 3, 3, "", true}, // no variant
		{200, 4, 5, "", false}, {100, 4, 5, "", true}, {100, 3, 3, "", false}, // 200m on a small node
		{100, 6, 9, "", false}, {200, 6, 9, "", false}, // fails: it stays
		{100, 3, 9, "", true}, {200, 10, 20, "", true}, {100, 10, 20, "", false}, // gone
		{100, 13, 20, "t_x", true}, {100, 13, 20, "t_y", false}, {100, 11, 11, "t_x", false}, {100, 13, 20, "t", false},
	} {
		if got := b.Differs("d", pod(c.milli), template(), "n", 3, c.low, c.high, c.of); got != c.want {
			t.Errorf("a pod with %dm from %d to %d, by %q: differs %t", c.milli, c.low, c.high, c.of, got)
		}
	}
	noted := dsv("r", 1, 9, ByClass)
	noted.Spec.Resources, noted.Spec.Patch = nil, &runtime.RawExtension{Raw: []byte(Refused)}
	b.Add(21, noted, false)
	for made, want := range map[int64]bool{20: false, 21: true} {
		if b.Differs("d", pod(100), template(), "n", made, 22, 23) != want {
			t.Errorf("a pod that is made at %d differs %t from one that the API refuses since 21", made, !want)
		}
	}
	for at, want := range map[[2]int64]bool{{1, 3}: false, {1, 4}: true, {4, 5}: false, {4, 6}: true, {6, 9}: false, {9, 10}: true, {11, 20}: false} {
		if b.Edited(at[0], at[1]) != want {
			t.Errorf("edited from %d to %d: %t", at[0], at[1], !want)
		}
	}
	if _, known := b.Stored("t_x.c", 11); known {
		t.Error("variants are known before they are stored")
	}
}

func TestPods(t *testing.T) {
	a, b := pod(100), pod(200)
	if !Resized(a, b) || Resized(a, pod(100)) {
		t.Error("it is not told which pod was resized")
	}
	a.Labels = map[string]string{"everynode.io/revision": "t_x"}
	if Twins(a, b) || !Twins(a, a) {
		t.Error("pods of other variants are twins, or those of the same are not")
	}
	a.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: "True", Reason: corev1.PodReasonInfeasible}}
	if Twins(a, a) || !Infeasible(a) || Holds(a) {
		t.Error("a pod whose node cannot give it what it asks for is like any other")
	}
	b.Status.ContainerStatuses = []corev1.ContainerStatus{{Resources: &pod(100).Spec.Containers[0].Resources}}
	if Holds(b) || !Holds(pod(100)) {
		t.Error("it is not told which pod holds what it asks for")
	}
	if text := OfPod(b).String(); !strings.Contains(text, "cpu 200m, memory 64Mi") {
		t.Error(text)
	}
}

func TestSound(t *testing.T) {
	for text, want := range map[string]bool{ByClass: true, Greedy: false, NoSuch: false, NotSmall: false, Impossible: false} {
		if got := Sound(&dsv("a", 1, 0, text).Spec); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
