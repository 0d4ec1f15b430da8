package variant

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/api/v1alpha1"
)

func template() *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}, Annotations: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"os": "linux"},
			Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{
				{Name: "agent", Image: "agent:1", Env: []corev1.EnvVar{{Name: "THREADS", Value: "1"}},
					Resources: corev1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "128Mi")}},
				{Name: "sidecar", Image: "sidecar:1"},
			},
		},
	}
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func node(labels map[string]string, cpu, memory float64) *Node {
	return &Node{Name: "n", Labels: labels, Size: Size{
		Allocatable: Amounts{CPU: cpu, Memory: memory, Storage: -1, Pods: 110}, Capacity: Amounts{-1, -1, -1, -1}}}
}

func choosing(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}

func must(t testing.TB, of ...Variant) *Set {
	t.Helper()
	s, err := NewSet(of)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func requests(name corev1.ResourceName, formula string) map[string]v1alpha1.VariantResources {
	return map[string]v1alpha1.VariantResources{
		"agent": {Requests: map[corev1.ResourceName]string{name: formula}}}
}

const threads = `{"spec": {"containers": [{"name": "agent", "env": [{"name": "THREADS", "value": "8"}]}]}}`

// A node has the pod of the variant that chooses it; patch and formulas leave all else as it is.
func TestWhatANodeHas(t *testing.T) {
	s := must(t,
		Variant{Name: "base", Resources: requests("memory", "max(quantity('128Mi'), node.allocatable.memory * 0.01)")},
		Variant{Name: "large", Nodes: choosing(map[string]string{"size": "xl"}), Priority: 10,
			Patch: json.RawMessage(threads), Resources: requests("cpu", "0.1 + node.allocatable.cpu * 0.01")})
	m := s.On(template())
	small := m.Of(node(nil, 2, 4<<30))
	if !small.Plain || small.Effect != "" || small.Variant != "base" {
		t.Errorf("a small node has %+v, which is what the template says", small)
	}
	middle := m.Of(node(nil, 16, 100<<30))
	if got := middle.Words(); got != "base (agent requests 1Gi of memory)" || middle.Plain {
		t.Errorf("a node of 100 Gi has %s", got)
	}
	xl := m.Of(node(map[string]string{"size": "xl"}, 192, 768<<30))
	if got := xl.Words(); got != "large (agent requests 2020m of cpu)" || xl.Effect == "" {
		t.Errorf("an xl node has %s, effect %q", got, xl.Effect)
	}
	spec := xl.Template.Spec.DeepCopy()
	xl.Resources.Fill(spec)
	want := template()
	want.Spec.Containers[0].Env[0].Value = "8"
	want.Spec.Containers[0].Resources.Requests = list("cpu", "2020m", "memory", "128Mi")
	if !apiequality.Semantic.DeepEqual(spec, &want.Spec) {
		t.Errorf("its pod is %+v", spec)
	}
	if none := must(t); none != nil {
		t.Errorf("without variants there is %+v", none)
	}
}

// The variant of the highest priority applies; those of the same one are in conflict. A naive count says the same.
func TestWhoIsChosen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all []Variant
		for i := range r.IntN(6) {
			v := Variant{Name: fmt.Sprint("v", i), Priority: int32(r.IntN(3))}
			if r.IntN(3) > 0 {
				v.Nodes = choosing(map[string]string{fmt.Sprint("l", r.IntN(2)): fmt.Sprint(r.IntN(2))})
			}
			all = append(all, v)
		}
		labels := map[string]string{"l0": fmt.Sprint(r.IntN(2)), "l1": fmt.Sprint(r.IntN(2))}
		best, want := int32(math.MinInt32), []string(nil)
		for _, v := range all {
			for key, value := range labels {
				if v.Nodes == nil || v.Nodes.MatchLabels[key] == value {
					switch {
					case v.Priority > best:
						best, want = v.Priority, []string{v.Name}
					case v.Priority == best && !slices.Contains(want, v.Name):
						want = append(want, v.Name)
					}
				}
			}
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		s := must(t, all...)
		if s == nil {
			continue
		}
		o := s.On(template()).Of(node(labels, 1, 1))
		got := o.Tied
		if len(got) == 0 && o.Variant != "" {
			got = []string{o.Variant}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("of %+v a node %v has %v, want %v", all, labels, got, want)
		}
	}
}

// Amounts are rounded up, to no more than the next step.
func TestRounding(t *testing.T) {
	for name, want := range map[corev1.ResourceName]map[float64]string{
		"cpu":    {0: "0", 0.001: "10m", 0.01: "10m", 0.0101: "20m", 0.07: "70m", 0.1: "100m", 1: "1", 1.001: "1010m"},
		"memory": {0: "0", 1: "16Mi", 16 << 20: "16Mi", 16<<20 + 1: "32Mi", 1 << 30: "1Gi"},
	} {
		for value, text := range want {
			if got, err := Round(name, value); err != nil || got.Cmp(resource.MustParse(text)) != 0 {
				t.Errorf("%v of %s becomes %v, %v, want %s", value, name, &got, err, text)
			}
		}
	}
	for _, value := range []float64{-1, -1e-9, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, 1 << 62} {
		for _, name := range computable {
			if got, err := Round(name, value); err == nil {
				t.Errorf("%v of %s becomes %v", value, name, &got)
			}
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		cores, bytes := float64(r.IntN(1e9))/1e6, math.Trunc(math.Exp(r.Float64()*34))
		for _, c := range []struct {
			name        corev1.ResourceName
			value       float64
			unit, milli int64
		}{{"cpu", cores, 10, 1000}, {"memory", bytes, 16 << 20 * 1000, 1000}} {
			q, err := Round(c.name, c.value)
			if err != nil {
				t.Fatal(err)
			}
			got, exact := new(big.Float).SetInt64(q.MilliValue()), new(big.Float).SetFloat64(c.value*float64(c.milli))
			above := new(big.Float).Sub(got, exact)
			if f, _ := above.Float64(); q.MilliValue()%c.unit != 0 || f < -1e-6 || f >= float64(c.unit) {
				t.Fatalf("%v of %s becomes %v", c.value, c.name, &q)
			}
		}
	}
}

// What changes by less than a tenth of what it was changes nothing.
func TestLessThanATenth(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20000 {
		have, want := int64(r.IntN(300))*grainBytes, int64(r.IntN(300))*grainBytes
		diff := have - want
		if diff < 0 {
			diff = -diff
		}
		naive := diff == 0 || new(big.Rat).SetFrac64(diff, 1).Cmp(new(big.Rat).SetFrac64(have, 10)) < 0
		got := closeTo(*resource.NewQuantity(have, resource.BinarySI), *resource.NewQuantity(want, resource.BinarySI))
		if got != naive {
			t.Fatalf("from %d to %d: %v, want %v", have, want, got, naive)
		}
	}
}

// A pod need not be replaced if and only if the one made now would be the same, but for amounts that are close. Where
// nobody knows what it is to be like, it stays.
func TestWhatFits(t *testing.T) {
	s := must(t, Variant{Name: "a", Resources: requests("memory", "node.allocatable.memory * 0.1")})
	at := func(s *Set, gi float64) Outcome { m := s.On(template()); return m.Of(node(nil, 4, gi*(1<<30))) }
	was := at(s, 100)
	text, err := was.Text("pod")
	if err != nil {
		t.Fatal(err)
	}
	marked := map[string]string{Annotation: text}
	have := MarkOf(&metav1.ObjectMeta{Name: "pod", Annotations: marked})
	if !have.Same(&was.Mark) {
		t.Fatalf("the mark %+v is read as %+v", was.Mark, have)
	}
	if other := MarkOf(&metav1.ObjectMeta{Name: "copy", Annotations: marked}); other.Variant != "" {
		t.Errorf("the mark of another pod is read as %+v", other)
	}
	patched := must(t, Variant{Name: "b", Patch: json.RawMessage(threads), Resources: s.Variants[0].Resources})
	sameAgain := must(t, Variant{Name: "b", Patch: json.RawMessage(`{"spec": {"containers": [{"name": "agent", "image": "agent:1"}]}}`),
		Resources: s.Variants[0].Resources})
	broken := must(t, Variant{Name: "b", Resources: requests("memory", "node.allocatable.nothing")})
	tied := must(t, Variant{Name: "b"}, Variant{Name: "c"})
	other := must(t, Variant{Name: "b", Resources: requests("cpu", "1")})
	for name, c := range map[string]struct {
		now  Outcome
		fits bool
	}{
		"the same":                     {at(s, 100), true},
		"a little more":                {at(s, 109), true},
		"a tenth more":                 {at(s, 110), false},
		"a little less":                {at(s, 91), true},
		"a tenth less":                 {at(s, 90), false},
		"a patch":                      {at(patched, 100), false},
		"a patch that changes nothing": {at(sameAgain, 100), true},
		"no variant":                   {Outcome{Plain: true}, false},
		"a formula that fails":         {at(broken, 100), true},
		"a conflict":                   {at(tied, 100), true},
		"another resource":             {at(other, 100), false},
	} {
		if got := c.now.Fits(&have); got != c.fits {
			t.Errorf("%s: it fits %v, want %v (%+v)", name, got, c.fits, c.now.Mark)
		}
	}
	if now := at(s, 100); now.Fits(&Mark{}) {
		t.Error("a pod of the plain template fits")
	}
	if now := (Outcome{Plain: true}); !now.Fits(&Mark{}) {
		t.Error("a plain pod does not fit where there is no variant")
	}
}

// An allocatable that moves a little, at the edge of what is rounded up, changes no pod more than once: neither one of a
// formula nor one of the template, which asks for the same. A tenth is one of what the formula gives, before it is rounded.
func TestAtTheEdgeOfAGrain(t *testing.T) {
	const mi = 1 << 20
	of := template()
	of.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("32Mi")}
	s := must(t, Variant{Name: "a", Resources: requests("memory", "node.allocatable.memory")})
	at := func(bytes float64) Outcome { m := s.On(of); return m.Of(node(nil, 4, bytes)) }
	was := at(32 * mi)
	for name, have := range map[string]Mark{"by the formula": was.Mark, "of the template": {}} {
		for _, c := range []struct {
			bytes float64
			fits  bool
		}{{32 * mi, true}, {32*mi + 4096, true}, {32*mi - 4096, true}, {35 * mi, true}, {36 * mi, false}} {
			if now := at(c.bytes); now.Fits(&have) != c.fits {
				t.Errorf("%s: at %v bytes it fits %v, want %v (%+v)", name, c.bytes, !c.fits, c.fits, now.Mark)
			}
		}
	}
}

// A node that says of itself that it has no cpu and memory has not found out: its pod stays as it is.
func TestNodesThatDoNotKnowTheirSize(t *testing.T) {
	of := template()
	s := must(t, Variant{Name: "a", Resources: requests("memory", "max(quantity('32Mi'), node.allocatable.memory * 0.1)")})
	m := s.On(of)
	n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"),
		"memory": resource.MustParse("64Gi"), "ephemeral-storage": resource.MustParse("0")}}}
	known := OfNode(n)
	if got := known.Size.Allocatable; got.Storage != 0 {
		t.Errorf("it has no disk, and %+v is known", got)
	}
	was := m.Of(&known)
	for _, name := range []corev1.ResourceName{"cpu", "memory"} {
		n.Status.Allocatable[name] = resource.MustParse("0")
	}
	lost := OfNode(n)
	if now := m.Of(&lost); now.Err == nil || !now.Fits(&was.Mark) {
		t.Errorf("it is to have %s, had %s (%v)", now.Words(), was.Words(), now.Err)
	}
}

// The ID is that of what the variants say, not of how it was written; every change of it is another.
func TestIDs(t *testing.T) {
	a := Variant{Name: "a", Priority: 1, Nodes: choosing(map[string]string{"x": "y"}), Patch: json.RawMessage(threads),
		Resources: requests("cpu", "1")}
	b := Variant{Name: "b"}
	id := must(t, a, b).ID
	written := a
	written.Patch = json.RawMessage(`{"spec":{"containers":[{"env":[{"value":"8","name":"THREADS"}],"name":"agent"}]}}`)
	if got := must(t, b, written).ID; got != id {
		t.Errorf("the same variants, written otherwise, are %s and %s", id, got)
	}
	text, err := must(t, a, b).Text()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Read(text); err != nil || again.ID != id || again.Digest != must(t, a, b).Digest {
		t.Errorf("what is stored is read as %+v, %v", again, err)
	}
	for name, change := range map[string]func(*Variant){
		"name":     func(v *Variant) { v.Name = "c" },
		"priority": func(v *Variant) { v.Priority = 2 },
		"nodes":    func(v *Variant) { v.Nodes = nil },
		"patch":    func(v *Variant) { v.Patch = nil },
		"formula":  func(v *Variant) { v.Resources = requests("cpu", "2") },
	} {
		changed := a
		change(&changed)
		if got := must(t, changed, b).ID; got == id {
			t.Errorf("another %s has the same ID", name)
		}
	}
}

func TestWhatAVariantMustLookLike(t *testing.T) {
	for name, c := range map[string]struct{ patch, want string }{
		"an environment variable":  {threads, ""},
		"annotations":              {`{"metadata": {"annotations": {"x": "y"}}}`, ""},
		"a container that goes":    {`{"spec": {"containers": [{"name": "sidecar", "$patch": "delete"}]}}`, ""},
		"priority":                 {`{"spec": {"priorityClassName": "high"}}`, ""},
		"no object":                {`[]`, "is not an object"},
		"no JSON":                  {`{`, "is not an object"},
		"labels":                   {`{"metadata": {"labels": {"app": "x"}}}`, "must leave metadata.labels alone"},
		"labels that go":           {`{"metadata": {"labels": null}}`, "must leave metadata.labels alone"},
		"all metadata":             {`{"metadata": {"$patch": "replace", "annotations": {}}}`, "must leave metadata.$patch alone"},
		"no metadata":              {`{"metadata": null}`, "must have an object as metadata"},
		"all":                      {`{"$patch": "replace"}`, "must leave $patch alone"},
		"all of the spec":          {`{"spec": {"$patch": "replace", "containers": []}}`, "must leave spec.$patch alone"},
		"only some of the spec":    {`{"spec": {"$retainKeys": ["containers"]}}`, "must leave spec.$retainKeys alone"},
		"a node selector":          {`{"spec": {"nodeSelector": {"a": "b"}}}`, "must leave spec.nodeSelector alone"},
		"no node selector":         {`{"spec": {"nodeSelector": null}}`, "must leave spec.nodeSelector alone"},
		"affinity":                 {`{"spec": {"affinity": {}}}`, "must leave spec.affinity alone"},
		"tolerations":              {`{"spec": {"tolerations": []}}`, "must leave spec.tolerations alone"},
		"the order of tolerations": {`{"spec": {"$setElementOrder/tolerations": []}}`, "alone"},
		"a scheduler":              {`{"spec": {"schedulerName": "x"}}`, "must leave spec.schedulerName alone"},
		"a node":                   {`{"spec": {"nodeName": "x"}}`, "must leave spec.nodeName alone"},
		"a gate":                   {`{"spec": {"schedulingGates": [{"name": "x"}]}}`, "must leave spec.schedulingGates alone"},
		"in other letters":         {`{"spec": {"NodeSelector": {"a": "b"}}}`, "must leave spec.NodeSelector alone"},
		"a slip":                   {`{"spec": {"container": []}}`, `unknown field "spec.container"`},
		"a slip below":             {`{"spec": {"containers": [{"name": "a", "imag": "x"}]}}`, "unknown field"},
		"another type":             {`{"spec": {"hostNetwork": "yes"}}`, "no pod template"},
		"a pod that ends":          {`{"spec": {"restartPolicy": "Never"}}`, "sets spec.restartPolicy to Never"},
		"a pod that is restarted":  {`{"spec": {"restartPolicy": "Always"}}`, ""},
		"a pod that ends in time":  {`{"spec": {"activeDeadlineSeconds": 60}}`, "sets spec.activeDeadlineSeconds"},
		"too much":                 {`{"spec": {"hostname": "` + strings.Repeat("a", MaxPatch) + `"}}`, "more than 32768 bytes"},
	} {
		v := &v1alpha1.DaemonSetVariant{}
		v.Spec.Patch = &runtime.RawExtension{Raw: []byte(c.patch)}
		check(t, name, v, c.want)
	}
	for name, c := range map[string]struct {
		container, resource, formula, want string
	}{
		"a formula":       {"agent", "memory", "node.allocatable.memory * 0.01", ""},
		"of storage":      {"agent", "ephemeral-storage", "quantity('1Gi')", ""},
		"of devices":      {"agent", "nvidia.com/gpu", "1", "Unsupported value"},
		"of huge pages":   {"agent", "hugepages-2Mi", "1", "Unsupported value"},
		"no formula":      {"agent", "cpu", "", "is empty"},
		"text":            {"agent", "cpu", "'100m'", "gives a string"},
		"a bad container": {"A b", "cpu", "1", "must be the name of a container"},
	} {
		v := &v1alpha1.DaemonSetVariant{}
		v.Spec.Resources = map[string]v1alpha1.VariantResources{
			c.container: {Limits: map[corev1.ResourceName]string{corev1.ResourceName(c.resource): c.formula}}}
		check(t, name, v, c.want)
	}
	v := &v1alpha1.DaemonSetVariant{}
	v.Spec.Nodes = choosing(map[string]string{"a b": ""})
	check(t, "a bad selector", v, "spec.nodes.matchLabels: Invalid")
	v = &v1alpha1.DaemonSetVariant{}
	v.Spec.Resources = map[string]v1alpha1.VariantResources{}
	for i := range MaxContainers + 1 {
		v.Spec.Resources[fmt.Sprint("c", i)] = v1alpha1.VariantResources{}
	}
	check(t, "too many containers", v, "spec.resources: Too many")
}

func check(t *testing.T, name string, v *v1alpha1.DaemonSetVariant, want string) {
	t.Helper()
	errs := Validate(v)
	if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), want)) {
		t.Errorf("%s: %v, want %q", name, errs, want)
	}
}

// What does not fit a template, or a node, is an error there that says which formula it is.
func TestWhatCannotBeHad(t *testing.T) {
	limited := template()
	limited.Spec.Containers[0].Resources.Limits = list("memory", "1Gi")
	for name, c := range map[string]struct {
		of   Variant
		want string
	}{
		"no such container": {Variant{Name: "a", Resources: map[string]v1alpha1.VariantResources{
			"x": {Requests: map[corev1.ResourceName]string{"cpu": "1"}}}}, "the template has no container x"},
		"no such amount":     {Variant{Name: "a", Resources: requests("ephemeral-storage", "node.allocatable['ephemeral-storage']")}, "no such key"},
		"less than nothing":  {Variant{Name: "a", Resources: requests("memory", "-1.0")}, "resources.agent.requests.memory gives -1"},
		"more than there is": {Variant{Name: "a", Resources: requests("memory", "1e300")}, "more than any node has"},
		"no number":          {Variant{Name: "a", Resources: requests("memory", "0.0 / 0.0")}, "gives no number"},
		"more than the limit": {Variant{Name: "a", Resources: requests("memory", "quantity('2Gi')")},
			"would request 2Gi of memory, and its limit is 1Gi"},
	} {
		if o := must(t, c.of).On(limited).Of(node(nil, 1, 1<<30)); o.Err == nil || !strings.Contains(o.Err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, o.Err, c.want)
		}
	}
}

// What a patch would change of labels and placement is found in what comes out, too.
func TestMergeLeavesPlacementAlone(t *testing.T) {
	for patch, want := range map[string]string{
		`{"spec": {"nodeSelector": {"a": "b"}}}`: "changes spec.nodeSelector",
		`{"spec": {"schedulerName": "x"}}`:       "changes spec.schedulerName",
		`{"spec": {"$patch": "replace"}}`:        "changes spec.",
		`{"metadata": {"labels": {"a": "b"}}}`:   "changes more of the metadata",
		`{"metadata": {"name": "b"}}`:            "changes more of the metadata",
	} {
		if after, err := merge(template(), []byte(patch)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", patch, after, err)
		}
	}
}

// Whatever a patch says, labels and placement stay as the template has them.
func FuzzPatch(f *testing.F) {
	for _, text := range []string{threads, `{"spec":{"nodeSelector":null}}`, `{"metadata":{"labels":{"$patch":"delete"}}}`,
		`{"spec":{"$patch":"replace"}}`, `{"spec":{"containers":[{"$patch":"replace"},{"name":"x"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"x"}],"containers":[{"name":"x"}]}}`,
		`{"spec":{"$deleteFromPrimitiveList/x":[1]}}`, `{"spec":{"containers":[{"name":null}]}}`,
		`{"spec":{"containers":{"name":"x"}}}`, `{"spec":{"volumes":[{"name":"x","$retainKeys":["name","emptyDir"],"emptyDir":{}}]}}`,
		`{"spec":{"containers":[null]}}`, `{"spec":{"tolerationS":[]}}`} {
		f.Add(text)
	}
	before := template()
	f.Fuzz(func(t *testing.T, text string) {
		checked := checkPatch([]byte(text))
		after, err := merge(before, []byte(text))
		if !reflect.DeepEqual(before, template()) {
			t.Fatal("the template itself was changed")
		}
		if err != nil {
			return
		}
		if checked == nil && (!apiequality.Semantic.DeepEqual(after.Labels, before.Labels) ||
			!apiequality.Semantic.DeepEqual(after.Spec.NodeSelector, before.Spec.NodeSelector) ||
			!apiequality.Semantic.DeepEqual(after.Spec.Tolerations, before.Spec.Tolerations) ||
			!apiequality.Semantic.DeepEqual(after.Spec.Affinity, before.Spec.Affinity) ||
			after.Spec.NodeName != "" || after.Spec.SchedulerName != "" || len(after.Spec.SchedulingGates) > 0 ||
			len(after.Spec.TopologySpreadConstraints) > 0) {
			t.Errorf("%s makes %+v", text, after)
		}
	})
}
