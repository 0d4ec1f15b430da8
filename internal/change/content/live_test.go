package content

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func hashed(name, letter string) string { return name + "-" + strings.Repeat(letter, digits) }

// Point has exactly the volumes that must show another copy show it, whatever copy the pod was made with.
func TestPodIsPointedAtContent(t *testing.T) {
	const spec = `
containers:
- {name: c, env: [{name: A, valueFrom: {configMapKeyRef: {name: fixed, key: a}}}], volumeMounts: [{name: part, mountPath: /a, subPath: x}]}
volumes:
- {name: v, configMap: {name: conf, items: [{key: k, path: p}]}}
- {name: part, configMap: {name: still}}
- {name: p, projected: {sources: [{configMap: {name: conf}}, {secret: {name: token}}, {serviceAccountToken: {path: t}}]}}
`
	members := func(letter string) []Member {
		return []Member{{Ref: Ref{ConfigMap, "conf"}, Copy: hashed("conf", letter)}, {Ref: Ref{ConfigMap, "fixed"}, Copy: hashed("fixed", "a")},
			{Ref: Ref{ConfigMap, "still"}, Copy: hashed("still", "a")}, {Ref: Ref{Secret, "token"}, Copy: hashed("token", letter)}}
	}
	made := podSpec(t, spec)
	Rewrite(made, members("a"))
	pod := &corev1.Pod{Spec: *made}
	for _, letter := range []string{"b", "c", "a"} {
		volumes, err := Point(&pod.Spec, members(letter))
		if err != nil {
			t.Fatal(err)
		}
		to := Pointing{Content: strings.Repeat(letter, digits), At: time.Unix(1, 5).UTC(), Volumes: volumes}
		text, err := to.Text()
		if err != nil {
			t.Fatal(err)
		}
		pod.Annotations = map[string]string{LiveName: text}
		shown, read, err := Shown(pod)
		if err != nil || read.Key() != to.Key() {
			t.Fatalf("%s is read as %+v: %v", text, read, err)
		}
		want := podSpec(t, spec)
		Rewrite(want, members(letter))
		for i := range want.Volumes {
			if got, want := shown.Spec.Volumes[i].String(), want.Volumes[i].String(); got != want {
				t.Errorf("with content %s it shows\n%s\nwant\n%s", letter, got, want)
			}
		}
	}
	if pod.Spec.Volumes[0].ConfigMap.Name != hashed("conf", "a") {
		t.Error("the pod itself was changed")
	}
}

func TestWhatARunningPodCannotFollow(t *testing.T) {
	at := func(name string) []Member { return []Member{{Ref: Ref{ConfigMap, name}, Copy: hashed(name, "b")}} }
	long := strings.Repeat("n", 240)
	for name, c := range map[string]struct {
		spec    string
		members []Member
		want    string
	}{
		"envFrom": {"{containers: [{name: c, envFrom: [{configMapRef: {name: conf}}]}]}", at("conf"), "container c has environment variables of ConfigMap conf"},
		"env": {"{initContainers: [{name: i, env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: a}}}]}]}", at("conf"),
			"container i has environment variables of ConfigMap conf"},
		"subPath": {"{containers: [{name: c, volumeMounts: [{name: v, mountPath: /a, subPathExpr: $(A)}]}], volumes: [{name: v, configMap: {name: conf}}]}", at("conf"),
			"container c mounts ConfigMap conf by subPath"},
		"init container": {"{initContainers: [{name: i, volumeMounts: [{name: v, mountPath: /a}]}], containers: [{name: c, volumeMounts: [{name: v, mountPath: /a}]}], " +
			"volumes: [{name: v, configMap: {name: conf}}]}", at("conf"), "init container i has read ConfigMap conf, and does not run again"},
		"gone":      {"{volumes: [{name: v, configMap: {name: conf}}]}", []Member{{Ref: Ref{ConfigMap, "conf"}, Copy: hashed("conf", "b"), Absent: true}}, "ConfigMap conf is gone"},
		"no member": {"{volumes: [{name: v, configMap: {name: " + hashed("conf", "a") + "}}]}", at("other"), "volume v shows a copy of what is no longer content"},
		"long": {"{volumes: [{name: v, configMap: {name: " + long + "}}]}",
			[]Member{{Ref: Ref{ConfigMap, long}, Copy: NameFor(long, make([]byte, 32))}}, "the name of ConfigMap " + long + " is too long to be followed"},
	} {
		if got, err := Point(podSpec(t, c.spec), c.members); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, %v; want %q", name, got, err, c.want)
		}
	}
	sidecar := podSpec(t, "{initContainers: [{name: i, restartPolicy: Always, volumeMounts: [{name: v, mountPath: /a}]}, {name: j, volumeMounts: [{name: w, mountPath: /a}]}], "+
		"volumes: [{name: v, configMap: {name: conf}}, {name: w, configMap: {name: other}}]}")
	if got, err := Point(sidecar, at("conf")); err != nil || len(got) != 1 {
		t.Errorf("a sidecar does not follow: %v, %v", got, err)
	}
	same := at("conf")
	spec := podSpec(t, "{containers: [{name: c, envFrom: [{configMapRef: {name: "+same[0].Copy+"}}]}], volumes: [{name: v, configMap: {name: plain}}]}")
	if got, err := Point(spec, same); err != nil || len(got) != 0 {
		t.Errorf("what stays as it is: %v, %v", got, err)
	}
}

// Names that are cut tell not whose copy it is. What stays as it is keeps no pod from being given the rest, and of what
// does not it is said that nobody knows.
func TestARunningPodWithLongNames(t *testing.T) {
	long := Ref{ConfigMap, strings.Repeat("n", 240)}
	const of = "{containers: [{name: c, env: [{name: A, valueFrom: {configMapKeyRef: {name: VAR, key: a, optional: true}}}]}]," +
		"volumes: [{name: v, configMap: {name: LONG}}, {name: w, configMap: {name: other}}]}"
	cut := func(first byte) string { return NameFor(long.Name, append([]byte{first}, make([]byte, 31)...)) }
	for _, m := range []Member{{Ref: long, Copy: cut(1)}, {Ref: long, Copy: cut(1), Absent: true}} {
		for _, variables := range []string{"conf", long.Name} {
			spec := podSpec(t, strings.NewReplacer("LONG", long.Name, "VAR", variables).Replace(of))
			other := Ref{ConfigMap, "other"}
			Rewrite(spec, []Member{m, {Ref: other, Copy: hashed("other", "a")}})
			next := Member{Ref: other, Copy: hashed("other", "b")}
			if got, err := Point(spec, []Member{m, next}); err != nil || len(got) != 1 || got[0].Copy != next.Copy {
				t.Errorf("while %s stays as it is: %v, %v", m.Copy, got, err)
			}
			const want = "the name of what volume v shows is too long to be followed"
			if got, err := Point(spec, []Member{{Ref: long, Copy: cut(2)}, next}); err == nil || err.Error() != want {
				t.Errorf("when %s does not: %v, %v; want %q", m.Copy, got, err, want)
			}
		}
	}
}

// A running pod whose volume refers to what is missing, by a name of this version or of an older one, stays while it is
// missing and is shown what comes. What its environment lacks comes with another pod.
func TestARunningPodIsShownWhatComes(t *testing.T) {
	ref := Ref{ConfigMap, "extra"}
	missing, there := Member{Ref: ref, Copy: hashed("extra", "a"), Absent: true}, Member{Ref: ref, Copy: hashed("extra", "b")}
	const volume, variables = "{volumes: [{name: v, configMap: {name: extra}}]}", "{containers: [{name: c, envFrom: [{configMapRef: {name: extra}}]}]}"
	for name, made := range map[string]Member{"now": missing, "by an older version": {Ref: ref, Copy: missing.Copy}} {
		spec := podSpec(t, volume)
		Rewrite(spec, []Member{made})
		if got, err := Point(spec, []Member{missing}); err != nil || len(got) != 0 {
			t.Errorf("made %s, while it is missing: %v, %v", name, got, err)
		}
		to, err := Point(spec, []Member{there})
		if err != nil || len(to) != 1 || to[0].Copy != there.Copy {
			t.Fatalf("made %s, when it is there: %v, %v", name, to, err)
		}
		text, err := (&Pointing{Content: strings.Repeat("b", digits), At: time.Unix(1, 0), Volumes: to}).Text()
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{Spec: *spec}
		pod.Annotations = map[string]string{LiveName: text}
		shown, _, err := Shown(pod)
		if err != nil || shown.Spec.Volumes[0].ConfigMap.Name != there.Copy {
			t.Errorf("made %s, it is shown %v, %v", name, shown.Spec.Volumes, err)
		}
	}
	spec := podSpec(t, variables)
	Rewrite(spec, []Member{missing})
	if _, err := Point(spec, []Member{missing}); err != nil {
		t.Errorf("variables of what is missing still: %v", err)
	}
	if _, err := Point(spec, []Member{there}); err == nil || err.Error() != "container c has environment variables of ConfigMap extra" {
		t.Errorf("variables of what is there now: %v", err)
	}
}

// No annotation opens what the pod's volumes do not name.
func TestPointingNamesCopiesOfWhatThePodNames(t *testing.T) {
	spec := podSpec(t, "{containers: [{name: c, envFrom: [{secretRef: {name: env}}]}], volumes: [{name: v, secret: {secretName: "+hashed("token", "a")+"}}, {name: w, configMap: {name: conf}}]}")
	for copied, c := range map[string]struct {
		ref  Ref
		good bool
	}{
		hashed("token", "b"): {Ref{Secret, hashed("token", "a")}, true},
		hashed("conf", "b"):  {Ref{ConfigMap, "conf"}, true},
		"token":              {Ref{Secret, hashed("token", "a")}, false},
		"stolen":             {Ref{Secret, hashed("token", "a")}, false},
		hashed("tok", "b"):   {Ref{Secret, hashed("token", "a")}, false},
		hashed("conf", "c"):  {Ref{Secret, "conf"}, false},
		hashed("env", "b"):   {Ref{Secret, "env"}, false},
		hashed("other", "b"): {Ref{ConfigMap, "other"}, false},
	} {
		p := Pointing{Volumes: []Pointed{{c.ref, copied}}}
		if err := p.Check(spec); (err == nil) != c.good {
			t.Errorf("%s in place of %s: %v", copied, c.ref, err)
		}
	}
	for _, bad := range []string{"", "{}", "[]", `{"content":"x","at":"2030-01-01T00:00:00Z"}`, `{"content":"` + strings.Repeat("a", digits) + `"}`} {
		if p, err := PointingOf(map[string]string{LiveName: bad}); err == nil {
			t.Errorf("%q is read as %+v", bad, p)
		}
	}
}
