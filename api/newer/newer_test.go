package newer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/everynode/everynode/api/v1alpha1"
)

func scheme(t testing.TB) *runtime.Scheme {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// text is an object of a kind as JSON, with the rest of its fields.
func text(kind, metadata, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"everynode.io/v1alpha1","kind":%q,"metadata":{"name":"x"%s}%s}`, kind, metadata, rest)
}

func read[T any](t testing.TB, s runtime.Serializer, data string) T {
	t.Helper()
	obj, _, err := s.Decode([]byte(data), nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return any(obj).(T)
}

// What is read says which of its fields nobody here knows, whatever its kind.
func TestUnknownFieldsAreNamed(t *testing.T) {
	s := ForStorage(scheme(t))
	for name, c := range map[string]struct{ kind, metadata, rest, want string }{
		"none":                     {"RolloutPolicy", "", `,"spec":{"waves":[{"name":"a","count":1}]}`, ""},
		"of the spec":              {"RolloutPolicy", "", `,"spec":{"quorum":{"of":3}}`, "spec.quorum"},
		"of a list":                {"RolloutPolicy", "", `,"spec":{"waves":[{"name":"a"},{"name":"b","hold":1}]}`, "spec.waves[1].hold"},
		"of the status":            {"DaemonSetRollout", "", `,"status":{"ghosts":[1,2]}`, "status.ghosts"},
		"of a variant":             {"DaemonSetVariant", "", `,"spec":{"zones":["a"]}`, "spec.zones"},
		"of a container's amounts": {"DaemonSetVariant", "", `,"spec":{"resources":{"c":{"floor":{}}}}`, "spec.resources.c.floor"},
		"of a NodeStartup":         {"NodeStartup", "", `,"spec":{"groups":[{"retry":1}]}`, "spec.groups[0].retry"},
		"beside the spec":          {"NodeStartup", "", `,"scale":{}`, "scale"},
		"what is in a patch":       {"DaemonSetVariant", "", `,"spec":{"patch":{"spec":{"what":1}}}`, ""},
		"metadata are not ours":    {"RolloutPolicy", `,"shard":"a"`, "", ""},
		"a field twice":            {"RolloutPolicy", "", `,"spec":{"images":"a","images":"b"}`, ""},
		"another case":             {"RolloutPolicy", "", `,"spec":{"Images":"a"}`, "spec.Images"},
		"another server said more": {"RolloutPolicy", `,"annotations":{"everynode.io/unknown-fields":"spec.b"}`, `,"spec":{"a":1}`, "spec.a, spec.b"},
		"another server said all":  {"RolloutPolicy", `,"annotations":{"everynode.io/unknown-fields":"spec.b"}`, "", "spec.b"},
		"what was said of a write": {"RolloutPolicy", `,"annotations":{"everynode.io/unknown-fields":"drop"}`, "", ""},
		"and there are some":       {"RolloutPolicy", `,"annotations":{"everynode.io/unknown-fields":"drop"}`, `,"spec":{"a":1}`, "spec.a"},
	} {
		got := read[metav1.Object](t, s, text(c.kind, c.metadata, c.rest))
		if is := got.GetAnnotations()[Annotation]; is != c.want || got.GetName() != "x" {
			t.Errorf("%s: %q is said of %s, want %q", name, is, got.GetName(), c.want)
		}
		if err := Check(got); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Check says %v", name, err)
		}
	}
}

// A condition that was true when somebody knew all of the object is not said to be so any more. One of whom all is
// known keeps it.
func TestConditionsOfWhatIsNotKnown(t *testing.T) {
	s := ForStorage(scheme(t))
	for _, kind := range []string{"RolloutPolicy", "DaemonSetRollout", "DaemonSetVariant", "NodeStartup"} {
		for _, field := range []string{`,"spec":{"quorum":1}`, ""} {
			const was = `,"status":{"conditions":[{"type":"Valid","status":"True","reason":"Valid","message":"",` +
				`"lastTransitionTime":"2026-08-01T12:00:00Z","observedGeneration":7}]}`
			o := read[runtime.Object](t, s, text(kind, "", field+was))
			got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				t.Fatal(err)
			}
			conditions, _, err := unstructured.NestedSlice(got, "status", "conditions")
			if err != nil || len(conditions) != 1 {
				t.Fatalf("%s: %v: %v", kind, conditions, err)
			}
			want := "True Valid: 7 2026-08-01T12:00:00Z"
			if field != "" {
				want = "Unknown NotFollowed: 7 2026-08-01T12:00:00Z"
			}
			c := conditions[0].(map[string]any)
			is := fmt.Sprintf("%s %s: %v %v", c["status"], c["reason"], c["observedGeneration"], c["lastTransitionTime"])
			if is != want || strings.Contains(c["message"].(string), "spec.quorum") != (field != "") {
				t.Errorf("%s with %q: %s %q, want %s", kind, field, is, c["message"], want)
			}
		}
	}
}

// In a list each object has its own, however many there are.
func TestEachObjectOfAListHasItsOwn(t *testing.T) {
	s := ForClients(scheme(t))
	for _, many := range []int{1, 60} {
		var items []string
		for i := range 4 {
			rest := ""
			if i == 1 || i == 3 {
				var fields []string
				for f := range many {
					fields = append(fields, fmt.Sprintf(`"f%d":1`, f))
				}
				rest = `,"spec":{` + strings.Join(fields, ",") + "}"
			}
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"n%d"}%s}`, i, rest))
		}
		list := read[*v1alpha1.RolloutPolicyList](t, s, text("RolloutPolicyList", "", `,"items":[`+strings.Join(items, ",")+`]`))
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Name+" "+Fields(&list.Items[i]))
		}
		want := "[n0  n1 spec.f0 n2  n3 spec.f0]"
		if many > 1 {
			all := "spec.f0, spec.f1, spec.f2, spec.f3, spec.f4 and 55 more"
			want = "[n0  n1 " + all + " n2  n3 " + all + "]"
		}
		if fmt.Sprint(got) != want {
			t.Errorf("with %d fields: %v\nwant %s", many, got, want)
		}
	}
}

// However long and strange, it is one line.
func TestNamesAreBounded(t *testing.T) {
	long, _ := json.Marshal(strings.Repeat("ä", 1000) + "\n")
	got := Fields(read[metav1.Object](t, ForStorage(scheme(t)), text("RolloutPolicy", "", `,"spec":{"a\nb":1,`+string(long)+`:2}`)))
	if !strings.HasPrefix(got, "spec.a?b, spec.ää") || !strings.HasSuffix(got, "...") || len(got) > 300 || !utf8.ValidString(got) {
		t.Errorf("it is said %q", got)
	}
}

// Nobody writes what would be weaker then, unless its author says so; what is stored never says it.
func TestWhatWouldLoseFieldsIsNotWritten(t *testing.T) {
	with := func(value string) *v1alpha1.RolloutPolicy {
		p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"a": "b"}}}
		p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("RolloutPolicy"))
		if value != "" {
			p.Annotations[Annotation] = value
		}
		return p
	}
	for name, c := range map[string]struct {
		s     runtime.Serializer
		value string
		says  bool // what is written says it too
		fails bool
	}{
		"stored":                          {s: ForStorage(scheme(t))},
		"stored, with fields":             {s: ForStorage(scheme(t)), value: "spec.x"},
		"stored, and they are given up":   {s: ForStorage(scheme(t)), value: Drop},
		"sent":                            {s: ForClients(scheme(t))},
		"sent, with fields":               {s: ForClients(scheme(t)), value: "spec.x", fails: true},
		"sent, and the server is told so": {s: ForClients(scheme(t)), value: Drop, says: true},
	} {
		p, out := with(c.value), &bytes.Buffer{}
		err := c.s.Encode(p, out)
		if (err != nil) != c.fails || err != nil && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.x")) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(out.String(), Annotation) != c.says || c.fails == strings.Contains(out.String(), `"a":"b"`) {
			t.Errorf("%s: %s is written", name, out)
		}
		if p.Annotations[Annotation] != c.value {
			t.Errorf("%s: the object itself was changed", name)
		}
	}
}

// BenchmarkDecode reads a rollout with as many steps as a large fleet has, as an API's storage and an informer do.
func BenchmarkDecode(b *testing.B) {
	r := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "agents"}}
	r.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DaemonSetRollout"))
	for i := range 200 {
		r.Status.Steps = append(r.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprintf("step-%d", i), Nodes: 250})
		r.Status.FailedRevisions = append(r.Status.FailedRevisions, v1alpha1.FailedRevision{Revision: fmt.Sprint(i)})
	}
	data, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	known := scheme(b)
	plain := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, known, known,
		jsonserializer.SerializerOptions{})
	for name, d := range map[string]runtime.Decoder{"marked": ForStorage(known), "plain": plain} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, _, err := d.Decode(data, nil, &v1alpha1.DaemonSetRollout{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
