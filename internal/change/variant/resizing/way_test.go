package resizing

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func template(change ...func(*corev1.PodTemplateSpec)) *corev1.PodTemplateSpec {
	t := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init", Image: "i"}},
		Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: list("memory", "100Mi"), Limits: list("memory", "4Gi")}}, {Name: "d", Image: "i"}}}}
	for _, c := range change {
		c(t)
	}
	return t
}

// vary is a variant, of a patch if that is not empty, and of the formulas of container c.
func vary(patch string, requests, limits map[corev1.ResourceName]string) variant.Variant {
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	if patch != "" {
		v.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
	}
	if requests != nil || limits != nil {
		v.Spec.Resources = map[string]v1alpha1.VariantResources{"c": {Requests: requests, Limits: limits}}
	}
	return variant.Of(v)
}

func outcome(t *testing.T, of *corev1.PodTemplateSpec, v *variant.Variant) *variant.Outcome {
	t.Helper()
	if v == nil {
		return &variant.Outcome{Template: of, Plain: true}
	}
	s, err := variant.NewSet([]variant.Variant{*v})
	if err != nil {
		t.Fatal(err)
	}
	o := s.On(of).Of(&variant.Node{Name: "n", Size: variant.Size{
		Allocatable: variant.Amounts{CPU: 4, Memory: 1 << 34}, Capacity: variant.Amounts{CPU: 4, Memory: 1 << 34}}})
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	return &o
}

// made is the pod that the outcome makes.
func made(t *testing.T, o *variant.Outcome) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{}}}
	p.Spec = *o.Template.Spec.DeepCopy()
	o.Resources.Fill(&p.Spec)
	text, err := o.Text("p")
	if err != nil {
		t.Fatal(err)
	}
	if !o.Plain {
		p.Annotations[variant.Annotation] = text
	}
	return p
}

type formulas = map[corev1.ResourceName]string

func memory(text string) formulas { return formulas{"memory": text} }

const gi = "node.allocatable.memory / 16.0"

// A way is one of the pod as it was: not of one that was resized since, or was made by something else.
func TestAWayIsOfThePodThatItWasFoundFor(t *testing.T) {
	v, twice := vary("", memory(gi), nil), vary("", memory(gi+"*2.0"), nil)
	base := template()
	for name, c := range map[string]struct {
		change func(p *corev1.Pod, w *Way)
		want   bool
	}{
		"as it was": {func(*corev1.Pod, *Way) {}, true},
		"about to be given the amounts": {func(p *corev1.Pod, w *Way) {
			p.Annotations[IntentAnnotation] = intend(t, p, w.Amounts)
		}, true},
		"about to be given others": {func(p *corev1.Pod, w *Way) {
			p.Annotations[IntentAnnotation] = intend(t, p, variant.Resources{})
		}, false},
		"made by something else": {func(p *corev1.Pod, w *Way) {
			p.Annotations[variant.Annotation] = made(t, outcome(t, base, &twice)).Annotations[variant.Annotation]
		}, false},
	} {
		p := made(t, outcome(t, base, &v))
		w, err := Find(p, base, outcome(t, base, &twice))
		if err != nil {
			t.Fatal(err)
		}
		c.change(p, w)
		if got := w.IsOf(p); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// intend is what the annotation of a pod says that is about to be given the amounts.
func intend(t *testing.T, p *corev1.Pod, amounts variant.Resources) string {
	t.Helper()
	text, err := json.Marshal(Intent{Pod: p.Name, Amounts: []variant.Resources{amounts}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What differs by amounts of cpu and memory alone, of containers that run, is resized; all else is replaced, with a
// reason.
func TestWays(t *testing.T) {
	v := func(patch string, requests, limits formulas) *variant.Variant {
		out := vary(patch, requests, limits)
		return &out
	}
	requests := func(of formulas) *variant.Variant { return v("", of, nil) }
	restart := func(t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: "memory", RestartPolicy: corev1.RestartContainer}}
	}
	guaranteed := func(t *corev1.PodTemplateSpec) {
		t.Spec.Containers = t.Spec.Containers[:1]
		t.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: list("memory", "1Gi", "cpu", "1"), Limits: list("memory", "1Gi", "cpu", "1")}
	}
	bestEffort := func(t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	}
	sidecar := func(t *corev1.PodTemplateSpec) {
		always := corev1.ContainerRestartPolicyAlways
		t.Spec.InitContainers[0].RestartPolicy = &always
	}
	patch := func(field, value string) string {
		return fmt.Sprintf(`{"spec":{"containers":[{"name":"c",%q:%s}]}}`, field, value)
	}
	setting := patch("env", `[{"name":"A","value":"1"}]`)
	patched := func(name, amount string) string {
		return patch("resources", fmt.Sprintf(`{"requests":{%q:%q}}`, name, amount))
	}
	initPatch := `{"spec":{"initContainers":[{"name":"init","resources":{"requests":{"memory":"1Gi"}}}]}}`
	asks := func(memory string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse(memory) }
	}
	older := func(p *corev1.Pod) {
		m := variant.MarkOf(&p.ObjectMeta)
		m.Shape, m.Patched = "", nil
		p.Annotations[variant.Annotation], _ = m.Text("p")
	}
	const more, twice = "more differs than cpu and memory", gi + "*2.0"
	for name, c := range map[string]struct {
		of       func(*corev1.PodTemplateSpec)
		from, to *variant.Variant
		live     func(*corev1.Pod) // what else happened to the pod
		want     string            // the words of the way, or why there is none
		restarts string
	}{
		"another formula": {from: requests(memory(gi)), to: requests(memory(gi + " * 2.0")),
			want: "c requests 2Gi of memory", restarts: "[]"},
		"a first formula":     {to: requests(memory(gi)), want: "c requests 1Gi of memory", restarts: "[]"},
		"a formula that goes": {from: requests(memory(gi)), want: "c requests 100Mi of memory", restarts: "[]"},
		"of cpu, too": {to: requests(formulas{"cpu": "0.5", "memory": gi}),
			want: "c requests 500m of cpu, c requests 1Gi of memory", restarts: "[]"},
		"that takes a request": {from: requests(formulas{"cpu": "0.5"}),
			want: "container c is to have no request of cpu any more"},
		"a limit": {to: v("", nil, memory(gi)), want: "c limits 1Gi of memory", restarts: "[]"},
		"a patched amount": {to: v(patched("memory", "300Mi"), nil, nil),
			want: "c requests 300Mi of memory", restarts: "[]"},
		"another patched one": {from: v(patched("memory", "300Mi"), nil, nil), to: v(patched("memory", "400Mi"), nil, nil),
			want: "c requests 400Mi of memory", restarts: "[]"},
		"a patched one goes": {from: v(patched("memory", "300Mi"), nil, nil),
			want: "c requests 100Mi of memory", restarts: "[]"},
		"with a setting": {to: v(setting, memory(gi), nil), want: more},
		"with the same setting": {from: v(setting, memory(gi), nil), to: v(setting, memory(twice), nil),
			want: "c requests 2Gi of memory", restarts: "[]"},
		"patched disk": {to: v(patched("ephemeral-storage", "1Gi"), nil, nil), want: more},
		"computed disk": {from: requests(formulas{"ephemeral-storage": "1e9"}),
			to:   requests(formulas{"ephemeral-storage": "2e9", "memory": gi}),
			want: "container c is to have another amount of ephemeral-storage"},
		"disk that is close": {from: requests(formulas{"ephemeral-storage": "1e9"}),
			to:   requests(formulas{"ephemeral-storage": "1.01e9", "memory": gi}),
			want: "c requests 1Gi of memory", restarts: "[]"},
		"an init container": {to: v(initPatch, nil, nil), want: more},
		"a sidecar": {of: sidecar, to: v(initPatch, nil, nil),
			want: "init requests 1Gi of memory", restarts: "[]"},
		"another class": {of: bestEffort, to: requests(memory(gi)),
			want: "its QoS class would change from BestEffort to Burstable"},
		"guaranteed, and stays": {of: guaranteed, to: v("", memory(twice), memory(twice)),
			want: "c requests 2Gi of memory, c limits 2Gi of memory", restarts: "[]"},
		"a limit alone": {of: bestEffort, from: v("", nil, memory(gi)), to: v("", nil, memory(twice)),
			live: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("memory", "1Gi") },
			want: "c requests 2Gi of memory, c limits 2Gi of memory", restarts: "[]"},
		"with a restart": {of: restart, to: requests(memory(gi)), want: "c requests 1Gi of memory", restarts: "[c]"},
		"without, of cpu": {of: restart, to: requests(formulas{"cpu": "1"}),
			want: "c requests 1 of cpu", restarts: "[]"},
		"done before a crash": {to: requests(memory(gi)), live: asks("1Gi"), restarts: "[]"},
		"resized by somebody": {from: requests(memory(gi)), to: requests(formulas{"memory": gi, "cpu": "1"}),
			live: asks("3Gi"), want: "c requests 1 of cpu", restarts: "[]"},
		"above a limit by others": {to: requests(memory(gi)),
			live: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits["memory"] = resource.MustParse("500Mi") },
			want: "container c would request 1Gi of memory, and its limit is 500Mi"},
		"an older version's mark": {from: v(setting, nil, nil), live: older,
			want: "it does not say which amounts a patch gave it: an older version made it"},
		"an older version's mark, and the same patch": {from: v(patched("cpu", "1"), memory(gi), nil),
			to: v(patched("cpu", "1"), memory(twice), nil), live: older,
			want: "c requests 2Gi of memory", restarts: "[]"},
	} {
		of := template()
		if c.of != nil {
			c.of(of)
		}
		p := made(t, outcome(t, of, c.from))
		if c.live != nil {
			c.live(p)
		}
		to := outcome(t, of, c.to)
		way, err := Find(p, of, to)
		switch {
		case err != nil && (err.Error() != c.want || c.restarts != ""):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case err == nil && (way.Words() != c.want || fmt.Sprint(way.Restarts) != c.restarts):
			t.Errorf("%s: %s, restarts %v, want %s, %s", name, way.Words(), way.Restarts, c.want, c.restarts)
		case err == nil && !to.Fits(&way.Mark):
			t.Errorf("%s: what it is then, %+v, is not what it is to be, %+v", name, way.Mark, to.Mark)
		}
	}
}

// A node that can never give a pod what was asked of it has it replaced; what the node can give is asked for all the same.
func TestWaysOfAPodThatCannotHaveIt(t *testing.T) {
	of := template()
	small, large := vary("", memory("1e9"), nil), vary("", memory("4e9"), nil)
	p := made(t, outcome(t, of, &large))
	r := Record{Pod: "p", Generation: 3, At: metav1.Now().Time}
	text, err := r.Text()
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations[Annotation], p.Generation, p.Status.ObservedGeneration = text, 3, 3
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
		Reason: corev1.PodReasonInfeasible, Message: "too small"}}
	if _, err := Find(p, of, outcome(t, of, &large)); err == nil || !strings.HasSuffix(err.Error(), "while it runs: too small") {
		t.Errorf("of what cannot be: %v", err)
	}
	if way, err := Find(p, of, outcome(t, of, &small)); err != nil || way.Words() != "c requests 960Mi of memory" {
		t.Errorf("of less: %v, %+v", err, way)
	}
}

// What a resize gave that ended half way is not taken for somebody else's: it goes where it is not wanted any more, and is
// known after a second try that ends half way as well. What somebody gave meanwhile stays.
func TestHalfWay(t *testing.T) {
	of := template()
	large, larger := vary("", memory(gi+"*2.0"), nil), vary("", memory(gi+"*3.0"), nil)
	p := made(t, outcome(t, of, nil))
	give := func(amount string) { p.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse(amount) }
	intend := func(to *variant.Variant) {
		t.Helper()
		way, err := Find(p, of, outcome(t, of, to))
		if err != nil {
			t.Fatal(err)
		}
		text, err := way.Intend(p)
		if err != nil || text == "" {
			t.Fatalf("%q, %v", text, err)
		}
		p.Annotations[IntentAnnotation] = text
		if text, err := way.Intend(p); err != nil || text != "" {
			t.Errorf("it says once more %q, %v", text, err)
		}
	}
	want := func(half bool, to *variant.Variant, words string) {
		t.Helper()
		if got := len(HalfWay(p)) > 0; got != half {
			t.Errorf("half way is %v, want %v", got, half)
		}
		if way, err := Find(p, of, outcome(t, of, to)); err != nil || way.Words() != words {
			t.Errorf("the way is %v, %v, want %q", way, err, words)
		}
	}
	intend(&large)
	want(false, nil, "")
	give("2Gi")
	want(true, nil, "c requests 100Mi of memory")
	want(true, &large, "")
	intend(&larger)
	want(true, nil, "c requests 100Mi of memory")
	give("3Gi")
	want(true, nil, "c requests 100Mi of memory")
	give("4Gi")
	want(false, nil, "")
	give("3Gi")
	p.Name = "q"
	want(false, nil, "")
}

// A pod says how far it has come; what somebody else asked for since is none of ours.
func TestStates(t *testing.T) {
	r := Record{Pod: "p", Generation: 2, At: metav1.Now().Time}
	condition := func(kind corev1.PodConditionType, reason string) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: "it says"}}
	}
	status := func(given, has string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "c", AllocatedResources: list("memory", given),
			Resources: &corev1.ResourceRequirements{Requests: list("memory", has)}}}
	}
	for name, c := range map[string]struct {
		generation, observed int64
		conditions           []corev1.PodCondition
		containers           []corev1.ContainerStatus
		want                 State
		says                 string
	}{
		"not seen yet":              {2, 1, nil, status("1Gi", "1Gi"), UnderWay, ""},
		"given, and not there":      {2, 2, nil, status("2Gi", "1Gi"), UnderWay, ""},
		"in work":                   {2, 2, condition(corev1.PodResizeInProgress, corev1.PodReasonError), status("2Gi", "1Gi"), UnderWay, "it says"},
		"waits for others":          {2, 2, condition(corev1.PodResizePending, corev1.PodReasonDeferred), status("1Gi", "1Gi"), NoRoom, "it says"},
		"never":                     {2, 2, condition(corev1.PodResizePending, corev1.PodReasonInfeasible), status("1Gi", "1Gi"), Impossible, "it says"},
		"there":                     {2, 2, nil, status("2Gi", "2Gi"), Done, ""},
		"asked for something since": {3, 3, condition(corev1.PodResizePending, corev1.PodReasonInfeasible), status("1Gi", "1Gi"), Done, ""},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: c.generation}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list("memory", "2Gi")}}}
		p.Status = corev1.PodStatus{ObservedGeneration: c.observed, Conditions: c.conditions, ContainerStatuses: c.containers}
		if got, says := r.StateOf(p); got != c.want || says != c.says {
			t.Errorf("%s: %v %q, want %v %q", name, got, says, c.want, c.says)
		}
		// Of a pod that asks for the same still, a later generation changes something else.
		asked := Record{Pod: r.Pod, Generation: c.generation - 1, At: r.At, Asked: AskedOf(p)}
		p.Status.ObservedGeneration = c.observed
		want := c.want
		if name == "asked for something since" {
			want = Impossible
		}
		if got, _ := asked.StateOf(p); got != want {
			t.Errorf("%s, and something else since: %v, want %v", name, got, want)
		}
		for _, list := range []*corev1.ResourceList{
			&p.Spec.Containers[0].Resources.Requests, &p.Spec.Containers[0].Resources.Limits} {
			was := *list
			*list = corev1.ResourceList{"memory": resource.MustParse("3Gi")}
			if got, _ := asked.StateOf(p); got != Done {
				t.Errorf("%s, and somebody resized it since: %v", name, got)
			}
			*list = was
		}
	}
	text, err := r.Text()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*corev1.Pod{
		"of another pod": {ObjectMeta: metav1.ObjectMeta{Name: "q", Annotations: map[string]string{Annotation: text}}},
		"no record":      {ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{Annotation: "{"}}},
		"none":           {ObjectMeta: metav1.ObjectMeta{Name: "p"}},
	} {
		if got := RecordOf(p); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
