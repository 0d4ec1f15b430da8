package content

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"
)

const everyPlace = `
initContainers:
- name: i
  envFrom: [{configMapRef: {name: from-init}}]
containers:
- name: c
  envFrom: [{configMapRef: {name: all, optional: true}}, {secretRef: {name: all}}]
  env:
  - {name: A, valueFrom: {configMapKeyRef: {name: key, key: a}}}
  - {name: B, valueFrom: {secretKeyRef: {name: key, key: b}}}
  - {name: C, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: D, value: plain}
  volumeMounts: [{name: v, mountPath: /a, subPath: agent.conf}]
imagePullSecrets: [{name: registry}]
volumes:
- {name: v, configMap: {name: volume, items: [{key: k, path: p}]}}
- {name: w, secret: {secretName: volume}}
- name: p
  projected:
    sources:
    - configMap: {name: projected}
    - configMap: {name: volume}
    - secret: {name: projected, optional: true}
    - serviceAccountToken: {path: token}
- {name: d, iscsi: {targetPortal: a, iqn: b, lun: 1, secretRef: {name: driver}}}
- {name: e, emptyDir: {}}
`

func podSpec(t *testing.T, text string) *corev1.PodSpec {
	t.Helper()
	var spec corev1.PodSpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return &spec
}

func TestTemplateNamesItsContent(t *testing.T) {
	got := fmt.Sprint(Refs(podSpec(t, everyPlace)))
	want := "[ConfigMap all ConfigMap from-init ConfigMap key ConfigMap projected ConfigMap volume Secret all Secret key Secret projected Secret volume]"
	if got != want {
		t.Errorf("the template names\n%s\nwant\n%s", got, want)
	}
}

// What is rewritten is each place that names content, and nothing else.
func TestRewrittenTemplateNamesTheCopies(t *testing.T) {
	spec := podSpec(t, everyPlace)
	var members []Member
	for _, ref := range Refs(spec) {
		members = append(members, Member{Ref: ref, Copy: ref.Name + "-" + strings.ToLower(string(ref.Kind)) + "-copy"})
	}
	rewritten := spec.DeepCopy()
	Rewrite(rewritten, members)
	for _, ref := range Refs(rewritten) {
		if !strings.HasSuffix(ref.Name, "-"+strings.ToLower(string(ref.Kind))+"-copy") {
			t.Errorf("the rewritten template names %s", ref)
		}
	}
	var back []Member
	for _, m := range members {
		back = append(back, Member{Ref: Ref{m.Kind, m.Copy}, Copy: m.Name})
	}
	Rewrite(rewritten, back)
	if !reflect.DeepEqual(spec, rewritten) {
		t.Error("the template differs in more than the names of its content")
	}
}

// TestVolumesReferToNothingThatSomebodyCanMake: what is optional is shown when it appears, so volumes refer to what is
// missing by a name that no object can have, and the API of pods takes. Of environment variables it takes no such name.
func TestVolumesReferToNothingThatSomebodyCanMake(t *testing.T) {
	spec := podSpec(t, `{containers: [{name: c, envFrom: [{configMapRef: {name: extra}}, {secretRef: {name: extra}}],
    env: [{name: A, valueFrom: {configMapKeyRef: {name: extra, key: a}}}, {name: B, valueFrom: {secretKeyRef: {name: extra, key: b}}}]}],
  volumes: [{name: v, configMap: {name: extra}}, {name: w, secret: {secretName: extra}},
    {name: p, projected: {sources: [{configMap: {name: extra}}, {secret: {name: extra}}]}}]}`)
	c, err := Of([]byte("key"), "agent", Refs(spec), objects())
	if err != nil {
		t.Fatal(err)
	}
	if is := c.Members[0].Copy; is != "extra-l5dqeeymgntrmgfjlxx2banz" {
		t.Errorf("the list names %s, which an older version does not", is)
	}
	if is := c.Members[0].CopyRef().Name; is != "extra-utn5uzcylaxjmomwmagzjriw" {
		t.Errorf("the empty copy is %s, which an older version did not make", is)
	}
	plain := map[string]any{}
	asJSON(t, spec, &plain)
	RewriteJSON(plain, c.Members)
	Rewrite(spec, c.Members)
	want := map[string]any{}
	asJSON(t, spec, &want)
	if !reflect.DeepEqual(plain, want) {
		t.Errorf("as JSON the spec becomes %v, want %v", plain, want)
	}
	for i := range spec.Volumes {
		walkVolume(&spec.Volumes[i].VolumeSource, func(kind Kind, name *string) {
			if len(validation.IsDNS1123Subdomain(*name)) == 0 || len(rest.IsValidPathSegmentName(*name)) > 0 {
				t.Errorf("volume %s refers to %s %s", spec.Volumes[i].Name, kind, *name)
			}
		})
	}
	walkContainer(&spec.Containers[0], func(kind Kind, name *string) {
		if len(validation.IsDNS1123Subdomain(*name)) > 0 || !slices.ContainsFunc(c.Members, func(m Member) bool {
			return m.CopyRef() == Ref{kind, *name} && m.Copy != *name
		}) {
			t.Errorf("variables are of %s %s, which is no empty copy", kind, *name)
		}
	})
}

// TestContainersWaitForWhatIsMissing: an empty copy stands for what was missing. It gives no variables, as what is
// missing does; but envFrom that needs the object would be content with it, so the container waits for a key of it.
func TestContainersWaitForWhatIsMissing(t *testing.T) {
	for from, waits := range map[string]string{
		`{configMapRef: {name: a}}`:                                                    "ConfigMap a",
		`{secretRef: {name: a}}`:                                                       "Secret a",
		`{configMapRef: {name: a, optional: true}}`:                                    "",
		`{secretRef: {name: a, optional: true}}`:                                       "",
		`{configMapRef: {name: there}}`:                                                "",
		`{configMapRef: {name: a, optional: true}}, {secretRef: {name: b}}`:            "Secret b",
		`{configMapRef: {name: b, optional: false}}, {secretRef: {name: a}}`:           "ConfigMap b",
		`{configMapRef: {name: there}, prefix: X}, {secretRef: {name: b}, prefix: Y_}`: "Secret b",
	} {
		for _, env := range []string{"", ", env: [{name: A, value: a}]"} {
			for _, in := range []string{"initContainers", "containers"} {
				spec := podSpec(t, `{`+in+`: [{name: first}, {name: c, envFrom: [`+from+`]`+env+`}]}`)
				there := configMap("there", nil, nil)
				c, err := Of([]byte("key"), "agent", Refs(spec), objects(there))
				if err != nil {
					t.Fatal(err)
				}
				Rewrite(spec, c.Members)
				got := ""
				for _, e := range append(spec.InitContainers, spec.Containers...)[1].Env {
					if e.ValueFrom == nil {
						continue
					}
					if k := e.ValueFrom.ConfigMapKeyRef; k != nil {
						got += "ConfigMap " + k.Key
					} else if k := e.ValueFrom.SecretKeyRef; k != nil {
						got += "Secret " + k.Key
					}
					if k := e.ValueFrom.ConfigMapKeyRef; k != nil && ptr.Deref(k.Optional, false) {
						t.Errorf("%s: it does not wait", from)
					}
				}
				if got != waits {
					t.Errorf("%s%s of %s waits for %q, want %q", from, env, in, got, waits)
				}
			}
		}
	}
}

// TestAnOlderVersionsPodsHaveWhatIsMissing: their variables name an object that does not exist. A running pod can be
// given other content all the same.
func TestAnOlderVersionsPodsHaveWhatIsMissing(t *testing.T) {
	m := Member{Ref{ConfigMap, "a"}, "a-" + strings.Repeat("a", digits), true}
	for name, follows := range map[string]bool{
		m.Copy: true, m.CopyRef().Name: true, "a-" + strings.Repeat("b", digits): false, "a": false,
	} {
		spec := podSpec(t, `{containers: [{name: c, envFrom: [{configMapRef: {name: `+name+`, optional: true}}]}]}`)
		if _, err := Point(spec, []Member{m}); (err == nil) != follows {
			t.Errorf("a pod with variables of %s: %v", name, err)
		}
	}
}

// TestRewrittenJSON: a spec as JSON has it is rewritten as one of the Go types is, for any pod; what was replaced is
// told with its place.
func TestRewrittenJSON(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(name *string, c randfill.Continue) { *name = []string{"a", "b", "a-copy", "", "c"}[c.Intn(5)] },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31n(9)) },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.Raw = []byte("{}") },
		func(at *metav1.Time, c randfill.Continue) { at.Time = time.Unix(c.Int63n(1000), 0).UTC() },
	)
	members := []Member{{Ref: Ref{ConfigMap, "a"}, Copy: "a-map"}, {Ref: Ref{Secret, "a"}, Copy: "a-secret"},
		{Ref: Ref{ConfigMap, "b"}, Copy: "b-map"}, {Ref: Ref{Secret, "b"}, Copy: "b-none", Absent: true},
		{Ref: Ref{Secret, ""}, Copy: "none"}}
	specs := []*corev1.PodSpec{podSpec(t, strings.ReplaceAll(strings.ReplaceAll(everyPlace, "volume}", "a}"), "all}", "b}"))}
	for range 100 {
		spec := &corev1.PodSpec{}
		fill.Fill(spec)
		specs = append(specs, spec)
	}
	renamed := 0
	for _, spec := range specs {
		plain := map[string]any{}
		asJSON(t, spec, &plain)
		asJSON(t, plain, spec) // what JSON does not tell apart is not told apart
		before, err := json.Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		edits := RewriteJSON(plain, members)
		renamed += len(edits)
		Rewrite(spec, slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Name == "" }))
		want := map[string]any{}
		asJSON(t, spec, &want)
		got := map[string]any{}
		asJSON(t, plain, &got)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("the spec becomes\n%+v\nand not\n%+v", got, want)
		}
		if edited := edit(t, before, edits); !reflect.DeepEqual(edited, want) {
			t.Fatalf("%+v makes of the spec\n%+v\nand not\n%+v", edits, edited, want)
		}
	}
	if renamed < 200 {
		t.Errorf("only %d names were replaced", renamed)
	}
	for _, odd := range []string{`{}`, `{"volumes":7,"containers":{"env":[]}}`, `{"volumes":[null,[],{"configMap":"a"}]}`,
		`{"containers":[{"env":[{"valueFrom":[]}],"envFrom":[{"configMapRef":{"name":["a"]}}]}],"initContainers":null}`} {
		var spec map[string]any
		asJSON(t, json.RawMessage(odd), &spec)
		if got := RewriteJSON(spec, members); got != nil {
			t.Errorf("of %s it replaces %v", odd, got)
		}
	}
}

// asJSON writes a value as JSON, and reads it as another.
func asJSON(t *testing.T, from, to any) {
	t.Helper()
	raw, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// edit is what a JSON Patch of edits makes of a spec.
func edit(t *testing.T, spec []byte, edits []Rewritten) (out map[string]any) {
	t.Helper()
	asJSON(t, json.RawMessage(spec), &out)
	for _, e := range edits {
		var in any = out
		path := strings.Split(strings.TrimSuffix(e.Path, "/-"), "/")[1:]
		for _, name := range path[:len(path)-1] {
			if list, is := in.([]any); is {
				i, _ := strconv.Atoi(name)
				in = list[i]
				continue
			}
			in = in.(map[string]any)[name]
		}
		switch at, last := in.(map[string]any), path[len(path)-1]; {
		case e.Op == "add" && strings.HasSuffix(e.Path, "/-"):
			at[last] = append(at[last].([]any), e.Value)
		case (e.Op == "replace") == (at[last] == nil) || e.Op != "replace" && e.Op != "add":
			t.Fatalf("%s of %s, where there is %v", e.Op, e.Path, at[last])
		default:
			at[last] = e.Value
		}
	}
	plain := map[string]any{}
	asJSON(t, out, &plain)
	return plain
}

// TestContentIsProvenByItsCopies: what somebody puts in place of a copy, or of the list, is noticed.
func TestContentIsProvenByItsCopies(t *testing.T) {
	conf, token := configMap("conf", map[string]string{"a": "1"}, nil), &Object{Ref: Ref{Secret, "token"},
		Binary: map[string][]byte{"t": []byte("x")}, Immutable: true}
	conf.Immutable = true
	c, err := Of([]byte("key"), "agent", []Ref{conf.Ref, {ConfigMap, "later"}, token.Ref}, objects(conf, token))
	if err != nil {
		t.Fatal(err)
	}
	held := func() map[string]*Object {
		empty := configMap("later", nil, nil)
		empty.Immutable = true
		return map[string]*Object{c.Members[0].Copy: conf, c.Members[1].CopyRef().Name: empty, c.Members[2].Copy: token}
	}
	for name, f := range map[string]struct {
		key   string
		spoil func(is *Content, held map[string]*Object)
		says  string
	}{
		"as it was made": {"key", func(*Content, map[string]*Object) {}, ""},
		"a copy is another": {"key", func(is *Content, held map[string]*Object) {
			held[is.Members[0].Copy] = configMap("conf", map[string]string{"a": "2"}, nil)
			held[is.Members[0].Copy].Immutable = true
		}, "was changed after it was made"},
		"a copy may be changed": {"key", func(is *Content, held map[string]*Object) {
			held[is.Members[0].Copy] = configMap("conf", map[string]string{"a": "1"}, nil)
		}, "was changed after it was made"},
		"a copy is gone": {"key", func(is *Content, held map[string]*Object) { delete(held, is.Members[2].Copy) }, "it is gone"},
		"a copy is gone, and one behind it is another": {"key", func(is *Content, held map[string]*Object) {
			delete(held, is.Members[0].Copy)
			held[is.Members[2].Copy] = &Object{Ref: token.Ref, Binary: map[string][]byte{"t": []byte("y")}, Immutable: true}
		}, "was changed after it was made"},
		"what was missing holds something": {"key", func(is *Content, held map[string]*Object) {
			held[is.Members[1].CopyRef().Name] = conf
		}, "was changed after it was made"},
		"what was missing may be changed": {"key", func(is *Content, held map[string]*Object) {
			held[is.Members[1].CopyRef().Name] = configMap("later", nil, nil)
		}, "was changed after it was made"},
		"what stands for what was missing is gone": {"key", func(is *Content, held map[string]*Object) {
			delete(held, is.Members[1].CopyRef().Name)
		}, ""},
		"somebody makes what an older version's pods name": {"key", func(is *Content, held map[string]*Object) {
			held[is.Members[1].Copy] = conf
		}, ""},
		"another list of good copies": {"key", func(is *Content, _ map[string]*Object) { is.Members = is.Members[1:] },
			"the list of content"},
		"another name for a good copy": {"key", func(is *Content, held map[string]*Object) {
			is.Members[0].Copy = "conf-" + strings.Repeat("a", digits)
			held[is.Members[0].Copy] = conf
		}, "was changed after it was made"},
		"what was there is listed as missing": {"key", func(is *Content, held map[string]*Object) {
			is.Members[0].Absent = true
			held[is.Members[0].CopyRef().Name] = held[is.Members[1].CopyRef().Name]
		}, "the list of content"},
		"another digest": {"key", func(is *Content, _ map[string]*Object) { is.Digest = "sha256:00" }, "the list of content"},
		"another key":    {"other", func(*Content, map[string]*Object) {}, "was changed after it was made"},
	} {
		is, copies := c, held()
		is.Members = slices.Clone(c.Members)
		f.spoil(&is, copies)
		err := is.Prove([]byte(f.key), "agent", func(of Ref) (*Object, error) { return copies[of.Name], nil })
		if f.says == "" && err != nil || f.says != "" && (err == nil || !strings.Contains(err.Error(), f.says)) {
			t.Errorf("%s: %v", name, err)
		}
		if is.Prove([]byte(f.key), "another", func(of Ref) (*Object, error) { return copies[of.Name], nil }) == nil {
			t.Errorf("%s: it is the content of another DaemonSet too", name)
		}
	}
	unread := errors.New("unread")
	if err := c.Prove([]byte("key"), "agent", func(Ref) (*Object, error) { return nil, unread }); !errors.Is(err, unread) {
		t.Errorf("what cannot be read gives %v", err)
	}
}

func objects(list ...*Object) Sum {
	return func(ref Ref) ([]byte, error) {
		for _, o := range list {
			if o.Ref == ref {
				return Hash([]byte("key"), "agent", ref, o)
			}
		}
		return nil, nil
	}
}

func configMap(name string, data map[string]string, binary map[string][]byte) *Object {
	return OfConfigMap(&corev1.ConfigMap{Data: data, BinaryData: binary, ObjectMeta: meta(name)})
}

func TestContentGoesByWhatAPodCanSee(t *testing.T) {
	refs := []Ref{{ConfigMap, "a"}, {ConfigMap, "b"}}
	of := func(list ...*Object) Content {
		c, err := Of([]byte("key"), "agent", refs, objects(list...))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	base := of(configMap("a", map[string]string{"x": "1", "y": "2"}, nil))
	labeled := configMap("a", map[string]string{"y": "2", "x": "1"}, nil)
	labeled.Labels = map[string]string{"argocd": "yes"}
	if same := of(labeled); !same.Same(&base) {
		t.Error("a label makes another content")
	}
	for name, other := range map[string]Content{
		"another value":        of(configMap("a", map[string]string{"x": "1", "y": "3"}, nil)),
		"a key less":           of(configMap("a", map[string]string{"x": "1"}, nil)),
		"shifted":              of(configMap("a", map[string]string{"x": "1y", "": "2"}, nil)),
		"in binary":            of(configMap("a", map[string]string{"x": "1"}, map[string][]byte{"y": []byte("2")})),
		"nothing":              of(configMap("a", nil, nil)),
		"not there":            of(),
		"the other one, empty": of(configMap("a", map[string]string{"x": "1", "y": "2"}, nil), configMap("b", nil, nil)),
	} {
		if other.ID == base.ID || other.Digest == base.Digest || !IsID(other.ID) {
			t.Errorf("%s: content %s is the same as %s", name, other.ID, base.ID)
		}
	}
	another, err := Of([]byte("another key"), "agent", refs, func(ref Ref) ([]byte, error) { return nil, nil })
	if err != nil || another.ID == of().ID || another.Members[0].Copy == of().Members[0].Copy {
		t.Errorf("the key changes neither the content nor the copies' names: %v", err)
	}
}

func TestLimits(t *testing.T) {
	var refs []Ref
	for i := range MaxObjects + 1 {
		refs = append(refs, Ref{ConfigMap, fmt.Sprintf("m%02d", i)})
	}
	if _, err := Of(nil, "agent", refs, objects()); err == nil || !strings.Contains(err.Error(), "21 ConfigMaps and Secrets") {
		t.Errorf("21 objects: %v", err)
	}
	if _, err := Of(nil, "agent", refs[:MaxObjects], objects()); err != nil {
		t.Errorf("20 objects: %v", err)
	}
	fits := configMap("m00", map[string]string{"k": strings.Repeat("v", MaxBytes-1)}, nil)
	if _, err := Of(nil, "agent", refs[:1], objects(fits)); err != nil {
		t.Errorf("an object of 1 MiB: %v", err)
	}
	large := configMap("m00", map[string]string{"k": strings.Repeat("v", MaxBytes)}, nil)
	if _, err := Of(nil, "agent", refs[:1], objects(large)); err == nil || strings.Contains(err.Error(), "vvv") {
		t.Errorf("an object of more than 1 MiB: %v", err)
	}
}

func TestManifestIsReadAsItWasWritten(t *testing.T) {
	c, err := Of(nil, "agent", []Ref{{ConfigMap, "a"}, {Secret, "a"}}, objects(configMap("a", nil, nil)))
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadManifest(data)
	if err != nil || !got.Same(&c) {
		t.Errorf("the manifest says %+v, %v; want %+v", got, err, c)
	}
	for name, bad := range map[string]string{
		"nothing":       "",
		"no content":    "{}",
		"another kind":  strings.Replace(data[manifestKey], `"kind":"Secret"`, `"kind":"Node"`, 1),
		"no ID":         strings.Replace(data[manifestKey], c.ID, "x", 1),
		"another order": strings.NewReplacer(`"ConfigMap"`, `"Secret"`, `"Secret"`, `"ConfigMap"`).Replace(data[manifestKey]),
	} {
		if _, err := ReadManifest(map[string]string{manifestKey: bad}); err == nil {
			t.Errorf("%s is read as a manifest", name)
		}
	}
}

func TestChangesNameKeysAndNoValues(t *testing.T) {
	refs := []Ref{{ConfigMap, "a"}, {ConfigMap, "b"}, {ConfigMap, "c"}}
	old := []*Object{configMap("a", map[string]string{"w": "", "x": "old", "y": "old", "z": "old", "same": ""}, nil), configMap("b", nil, nil)}
	fresh := []*Object{configMap("a", map[string]string{"v": "", "x": "new", "y": "new", "z": "new", "same": ""}, nil), configMap("c", nil, nil)}
	from, _ := Of([]byte("key"), "agent", refs, objects(old...))
	to, _ := Of([]byte("key"), "agent", refs, objects(fresh...))
	got := Changes(&from, &to, 20, func(m Member) *Object {
		for _, o := range old {
			if o.Ref == m.Ref && slices.Contains(from.Members, m) {
				return o
			}
		}
		return fresh[0]
	})
	want := []string{"ConfigMap a: v, w, x and 2 more keys", "ConfigMap b is gone", "ConfigMap c is there"}
	if !slices.Equal(got, want) {
		t.Errorf("changes are %q, want %q", got, want)
	}
	if got := Changes(&from, &to, 2, func(Member) *Object { return nil }); len(got) != 2 || got[1] != "and 2 more objects" {
		t.Errorf("cut to two lines they are %q", got)
	}
	if got := Changes(nil, &to, 20, nil); len(got) != 3 || got[0] != "ConfigMap a is part of the revision" {
		t.Errorf("from no content they are %q", got)
	}
	// With Secrets beside them, or without, or by another key, copies of the same have other names.
	other, _ := Of([]byte("other key"), "agent", refs, func(ref Ref) ([]byte, error) {
		if o := objectOf(old, ref); o != nil {
			return Hash([]byte("other key"), "agent", ref, o)
		}
		return nil, nil
	})
	if got := Changes(&from, &other, 20, func(m Member) *Object { return objectOf(old, m.Ref) }); len(got) != 0 {
		t.Errorf("of what holds the same they are %q", got)
	}
	got = Changes(&from, &other, 20, func(Member) *Object { return nil })
	if len(got) != 2 || got[0] != "ConfigMap a: keys that are not known" { // c is missing in both
		t.Errorf("where nobody knows what it held they are %q", got)
	}
	none := Content{}
	if got := Changes(&from, &none, 20, nil); len(got) != 3 || got[0] != "ConfigMap a is no longer part of the revision" {
		t.Errorf("to no content they are %q", got)
	}
}

func objectOf(all []*Object, ref Ref) *Object {
	if i := slices.IndexFunc(all, func(o *Object) bool { return o.Ref == ref }); i >= 0 {
		return all[i]
	}
	return nil
}

func TestRevisionNames(t *testing.T) {
	id := strings.Repeat("a2", 12)
	for _, c := range [][3]string{
		{"5d8f", id, "5d8f." + id}, {"5d8f", "", "5d8f"}, {"my.ds-5d8f", id, "my.ds-5d8f." + id}, {"my.ds-5d8f", "", "my.ds-5d8f"}, {"", "", ""},
	} {
		if r := Revision(c[0], c[1]); r != c[2] || TemplateOf(r) != c[0] || IDOf(r) != c[1] {
			t.Errorf("template %q and content %q are %q, read as %q and %q", c[0], c[1], r, TemplateOf(r), IDOf(r))
		}
	}
	// An equal template can have another hash since; what is no ID is none.
	for value, want := range map[string]string{"old." + id: "new." + id, "old.short": "new", id: "new", "": "new", "." + id: "new"} {
		if got := RevisionOf("new", map[string]string{RevisionLabel: value}); got != want {
			t.Errorf("a pod with hash new and label %q has revision %q, want %q", value, got, want)
		}
	}
	if got := RevisionOf("", map[string]string{RevisionLabel: "old." + id}); got != "" {
		t.Errorf("a pod without a hash has revision %q", got)
	}
}

// Whatever a template names, each name is found once, and all are replaced.
func FuzzTemplates(f *testing.F) {
	f.Add([]byte(`{"volumes":[{"name":"v","configMap":{"name":"a"}},{"name":"w","projected":{"sources":[{"secret":{"name":"a"}},{}]}}]}`))
	f.Add([]byte(`{"containers":[{"name":"c","env":[{"name":"A","valueFrom":{}},{"name":"B","valueFrom":{"secretKeyRef":{}}}],"envFrom":[{}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var spec corev1.PodSpec
		if json.Unmarshal(raw, &spec) != nil {
			t.Skip()
		}
		refs := Refs(&spec)
		if !slices.IsSortedFunc(refs, Ref.Compare) || len(slices.Compact(slices.Clone(refs))) != len(refs) {
			t.Errorf("the template names %v: not sorted, or one twice", refs)
		}
		if len(refs) > MaxObjects {
			return
		}
		c, err := Of([]byte("key"), "owner", refs, objects())
		if err != nil {
			t.Fatal(err)
		}
		data, err := c.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ReadManifest(data); err == nil && !back.Same(&c) {
			t.Errorf("the manifest of %+v says %+v", c, back)
		}
		Rewrite(&spec, c.Members)
		for _, m := range c.Members {
			named := Refs(&spec)
			if len(m.Copy) > maxName || !slices.Contains(named, m.CopyRef()) && !slices.Contains(named, Ref{m.Kind, m.inVolumes()}) {
				t.Errorf("the rewritten template does not name %q", m.Copy)
			}
		}
	})
}

// What somebody wrote in place of a manifest is refused, or read as it is.
func FuzzManifests(f *testing.F) {
	f.Add(`{"id":"aaaaaaaaaaaaaaaaaaaaaaaa","digest":"x","members":[{"kind":"Secret","name":"a","copy":"b"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ReadManifest(map[string]string{manifestKey: text})
		if err == nil && (!IsID(c.ID) || len(c.Members) > MaxObjects) {
			t.Errorf("%q is read as %+v", text, c)
		}
	})
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// TestWhatNoObjectCanBeCalledHasNoCopy: the API takes any name in a volume. A content is proven without what cannot be.
func TestWhatNoObjectCanBeCalledHasNoCopy(t *testing.T) {
	spec := podSpec(t, `{volumes: [{name: v, configMap: {name: Extra_Conf, optional: true}}]}`)
	c, err := Of(nil, "agent", Refs(spec), objects())
	if err != nil {
		t.Fatal(err)
	}
	err = c.Prove(nil, "agent", func(of Ref) (*Object, error) { return nil, fmt.Errorf("%s is read", of) })
	if err != nil || c.Members[0].HasCopy() {
		t.Errorf("%+v: %v", c.Members, err)
	}
}
