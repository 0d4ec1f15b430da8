package conformance

import (
	"slices"
	"strings"
	"testing"
)

func TestOrderOfErrors(t *testing.T) {
	s := start(t)
	const wrong = `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"wrong","labels":{"a b":"c"}},"spec":{
		"selector":{"matchExpressions":[{"key":"app","operator":"In"}]},
		"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[],"restartPolicy":"Never","activeDeadlineSeconds":5}},
		"minReadySeconds":-1,"revisionHistoryLimit":-2,"updateStrategy":{"rollingUpdate":{"maxUnavailable":0}}}}`
	const label = `metadata.labels: Invalid value: "a b": name part must consist of`
	spec := []string{
		"spec.selector.matchExpressions[0].values: Required value",
		"spec.template.spec.containers: Required value",
		`spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`,
		"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported",
		"spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
		"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
		"spec.revisionHistoryLimit: Invalid value: -2: must be greater than or equal to 0",
	}
	// The library checks metadata more than once; clients show a cause once.
	causes := func(r reply) (out []string) {
		list, _ := r.at("details.causes").([]any)
		for _, c := range list {
			m := c.(map[string]any)
			out = append(out, m["field"].(string)+": "+m["message"].(string))
		}
		return slices.Compact(out)
	}
	check := func(t *testing.T, got, want []string) {
		t.Helper()
		ok := len(got) == len(want)
		for i := range want {
			ok = ok && strings.HasPrefix(got[i], want[i])
		}
		if !ok {
			t.Errorf("causes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	t.Run("on creation", func(t *testing.T) {
		check(t, causes(s.send(t, "POST", daemonSets, asJSON, wrong).want(t, 422)), slices.Concat([]string{label}, spec))
	})
	t.Run("on update the selector comes first", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("wrong", "", "")).want(t, 201)
		got := causes(s.send(t, "PUT", daemonSets+"/wrong", asJSON, wrong).want(t, 422))
		check(t, got, slices.Concat([]string{label, `spec.selector: Invalid value: {"matchExpressions":[{"key":"app","operator":"In"}]}: field is immutable`}, spec))
	})
	t.Run("the selector alone", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("selected", "", "")).want(t, 201)
		s.send(t, "PATCH", daemonSets+"/selected", mergePatch, `{"spec":{"selector":{"matchLabels":{"app":"y"}},"template":{"metadata":{"labels":{"app":"y"}}}}}`).
			says(t, 422, "Invalid", `DaemonSet.apps "selected" is invalid: spec.selector: Invalid value: {"matchLabels":{"app":"y"}}: field is immutable`)
		s.send(t, "PATCH", daemonSets+"/selected", mergePatch, `{"spec":{"selector":{"matchLabels":{"app":"y"}}}}`).
			says(t, 422, "Invalid", `DaemonSet.apps "selected" is invalid: [spec.selector: Invalid value: {"matchLabels":{"app":"y"}}: field is immutable, `+
				"spec.template.metadata.labels: Invalid value: {\"app\":\"selected\"}: `selector` does not match template `labels`]")
	})
}

func TestWarnings(t *testing.T) {
	s := start(t)
	const twice = `,"template":{"metadata":{"labels":{"app":"NAME"}},"spec":{"containers":[{"name":"main","image":"i","env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]}]}}`
	const hides = `spec.template.spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`
	expect := func(t *testing.T, r reply, want ...string) {
		t.Helper()
		if !slices.Equal(r.warnings, want) {
			t.Errorf("warnings are %q, want %q", r.warnings, want)
		}
	}
	manifest := func(name, fields string) string {
		return `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"` + name + `"},"spec":{"selector":{"matchLabels":{"app":"` + name + `"}}` +
			strings.ReplaceAll(fields, "NAME", name) + `}}`
	}
	t.Run("about the template, when it is new", func(t *testing.T) {
		expect(t, s.send(t, "POST", daemonSets, asJSON, manifest("warned", twice)).want(t, 201), hides)
		expect(t, s.send(t, "PATCH", daemonSets+"/warned", mergePatch, `{"spec":{"minReadySeconds":1}}`).want(t, 200))
		expect(t, s.send(t, "PATCH", daemonSets+"/warned", mergePatch, `{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`).want(t, 200), hides)
	})
	t.Run("none about a host port with maxSurge", func(t *testing.T) {
		expect(t, s.send(t, "POST", daemonSets, asJSON, manifest("surging",
			`,"updateStrategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":0}},"template":{"metadata":{"labels":{"app":"NAME"}},`+
				`"spec":{"containers":[{"name":"main","image":"i","ports":[{"containerPort":80,"hostPort":80}]}]}}`)).want(t, 201))
	})
	t.Run("of Pod Security about the template", func(t *testing.T) {
		s.send(t, "POST", "/api/v1/namespaces", asJSON,
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"guarded","labels":{"pod-security.kubernetes.io/warn":"baseline"}}}`).want(t, 201)
		expect(t, s.send(t, "POST", "/apis/apps/v1/namespaces/guarded/daemonsets", asJSON, manifest("hosted",
			`,"template":{"metadata":{"labels":{"app":"NAME"}},"spec":{"hostNetwork":true,"containers":[{"name":"main","image":"i"}]}}`)).want(t, 201),
			`would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	})
}
