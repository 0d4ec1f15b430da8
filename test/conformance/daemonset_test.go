package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDiscovery(t *testing.T) {
	s := start(t)
	list := s.send(t, "GET", "/apis/apps/v1", asJSON, "").want(t, 200)
	found := map[string]map[string]any{}
	for _, r := range list.body["resources"].([]any) {
		r := r.(map[string]any)
		found[r["name"].(string)] = r
	}
	t.Run("names of DaemonSets", func(t *testing.T) {
		reply{body: found["daemonsets"]}.expect(t, map[string]string{
			"namespaced": "true", "kind": `"DaemonSet"`, "singularName": `"daemonset"`, "shortNames": `["ds"]`, "categories": `["all"]`,
		})
		got := s.send(t, "GET", daemonSets, asJSON, "").want(t, 200)
		got.expect(t, map[string]string{"kind": `"DaemonSetList"`})
	})
	t.Run("the status is the only subresource of DaemonSets", func(t *testing.T) {
		var subresources []string
		for name := range found {
			if strings.HasPrefix(name, "daemonsets/") {
				subresources = append(subresources, name)
			}
		}
		if !slices.Equal(subresources, []string{"daemonsets/status"}) {
			t.Fatalf("subresources are %q", subresources)
		}
		reply{body: found["daemonsets/status"]}.expect(t, map[string]string{"verbs": `["get","patch","update"]`})
		s.send(t, "POST", daemonSets, asJSON, daemonSet("scaled", "", "")).want(t, 201)
		s.send(t, "GET", daemonSets+"/scaled/scale", asJSON, "").says(t, 404, "NotFound", "the server could not find the requested resource")
	})
	t.Run("verbs of DaemonSets", func(t *testing.T) {
		verbs := map[string]string{"verbs": `["create","delete","deletecollection","get","list","patch","update","watch"]`}
		reply{body: found["daemonsets"]}.expect(t, verbs)
		reply{body: found["controllerrevisions"]}.expect(t, verbs)
	})
}

func TestWriting(t *testing.T) {
	s := start(t)
	t.Run("a PUT creates nothing", func(t *testing.T) {
		s.send(t, "PUT", daemonSets+"/missing", asJSON, daemonSet("missing", "", "")).
			says(t, 404, "NotFound", `daemonsets.apps "missing" not found`)
	})
	t.Run("a PUT without a version overwrites", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("over", "", "")).want(t, 201)
		s.send(t, "PUT", daemonSets+"/over", asJSON, daemonSet("over", "", `,"minReadySeconds":3`)).want(t, 200).
			expect(t, map[string]string{"spec.minReadySeconds": "3"})
	})
	t.Run("an old version is a conflict", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("old", "", "")).want(t, 201)
		s.send(t, "PUT", daemonSets+"/old", asJSON, daemonSet("old", `,"resourceVersion":"1"`, "")).says(t, 409, "Conflict",
			`Operation cannot be fulfilled on daemonsets.apps "old": the object has been modified; please apply your changes to the latest version and try again`)
	})
	t.Run("an unknown field is refused when the client is strict", func(t *testing.T) {
		const says = `DaemonSet in version "v1" cannot be handled as a DaemonSet: strict decoding error: unknown field "spec.replicas"`
		body := daemonSet("strict", "", `,"replicas":2`)
		s.send(t, "POST", daemonSets+"?fieldValidation=Strict", asJSON, body).says(t, 400, "BadRequest", says)
		s.send(t, "POST", daemonSets, asJSON, daemonSet("strict", "", "")).want(t, 201)
		s.send(t, "PUT", daemonSets+"/strict?fieldValidation=Strict", asJSON, body).says(t, 400, "BadRequest", says)
		s.send(t, "POST", daemonSets+"?fieldValidation=Strict", asJSON, daemonSet("strict", "", `,"replicas":2,"color":"red","minReadySeconds":1,"minReadySeconds":2`)).
			says(t, 400, "BadRequest", `DaemonSet in version "v1" cannot be handled as a DaemonSet: strict decoding error: unknown field "spec.replicas", `+
				`unknown field "spec.color", duplicate field "spec.minReadySeconds"`)
	})
	t.Run("an unknown field in a patch is refused when the client is strict", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("patched", "", "")).want(t, 201)
		got := s.send(t, "PATCH", daemonSets+"/patched?fieldValidation=Strict", strategic, `{"spec":{"replicas":2}}`)
		got.says(t, 422, "Invalid", ` "" is invalid: patch: Invalid value: "map[spec:map[replicas:2]]": strict decoding error: unknown field "spec.replicas"`)
	})
	t.Run("an unknown field is left out with a warning by default", func(t *testing.T) {
		got := s.send(t, "POST", daemonSets, asJSON, daemonSet("lax", "", `,"replicas":2`)).want(t, 201)
		if !slices.Equal(got.warnings, []string{`unknown field "spec.replicas"`}) || got.at("spec.replicas") != nil {
			t.Errorf("warnings are %q, replicas %v", got.warnings, got.at("spec.replicas"))
		}
		got = s.send(t, "POST", daemonSets+"?fieldValidation=Ignore", asJSON, daemonSet("laxer", "", `,"replicas":2`)).want(t, 201)
		if len(got.warnings) > 0 {
			t.Errorf("warnings are %q though none are wanted", got.warnings)
		}
	})
	t.Run("numbers that are zero are shown where they always are", func(t *testing.T) {
		got := s.send(t, "POST", daemonSets, asJSON, daemonSet("zero", "", "")).want(t, 201)
		got.expect(t, map[string]string{
			"status":                          `{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}`,
			"spec.template.metadata":          `{"labels":{"app":"zero"}}`,
			"spec.minReadySeconds":            "null",
			"spec.updateStrategy":             `{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1},"type":"RollingUpdate"}`,
			"spec.revisionHistoryLimit":       "10",
			"spec.template.spec.nodeSelector": "null",
		})
	})
}

const generation = "metadata/annotations/deprecated.daemonset.template.generation"

func TestGenerations(t *testing.T) {
	s := start(t)
	expect := func(t *testing.T, r reply, spec, template int) {
		t.Helper()
		r.expect(t, map[string]string{"metadata.generation": fmt.Sprint(spec), generation: fmt.Sprintf("%q", fmt.Sprint(template))})
	}
	t.Run("a new DaemonSet has generation 1 and no status", func(t *testing.T) {
		body := strings.TrimSuffix(daemonSet("new", `,"generation":7`, ""), "}") + `,"status":{"numberReady":5,"observedGeneration":7}}`
		got := s.send(t, "POST", daemonSets, asJSON, body).want(t, 201)
		expect(t, got, 1, 1)
		got.expect(t, map[string]string{"status.numberReady": "0", "status.observedGeneration": "null"})
	})
	annotated := func(value string) string {
		return fmt.Sprintf(`,"annotations":{"deprecated.daemonset.template.generation":%q}`, value)
	}
	t.Run("its creator may give the template's generation", func(t *testing.T) {
		expect(t, s.send(t, "POST", daemonSets, asJSON, daemonSet("given", annotated("5"), "")).want(t, 201), 1, 5)
		expect(t, s.send(t, "POST", daemonSets, asJSON, daemonSet("zero", annotated("0"), "")).want(t, 201), 1, 1)
		expect(t, s.send(t, "POST", daemonSets, asJSON, daemonSet("negative", annotated("-3"), "")).want(t, 201), 1, 1)
	})
	t.Run("a template's generation that is no number is a bad request", func(t *testing.T) {
		const says = `DaemonSet in version "v1" cannot be handled as a DaemonSet: strconv.ParseInt: parsing "abc": invalid syntax`
		s.send(t, "POST", daemonSets, asJSON, daemonSet("bad", annotated("abc"), "")).says(t, 400, "BadRequest", says)
		s.send(t, "POST", daemonSets, asJSON, daemonSet("bad", "", "")).want(t, 201)
		s.send(t, "PUT", daemonSets+"/bad", asJSON, daemonSet("bad", annotated("abc"), "")).says(t, 400, "BadRequest", says)
		s.send(t, "PUT", daemonSets+"/bad/status", asJSON, daemonSet("bad", annotated("abc"), "")).says(t, 400, "BadRequest", says)
		patch := `{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"abc"}}}`
		got := s.send(t, "PATCH", daemonSets+"/bad", mergePatch, patch)
		if got.code/100 != 4 || !strings.Contains(string(got.raw), `strconv.ParseInt: parsing \"abc\": invalid syntax`) {
			t.Errorf("a patch: %d %s", got.code, got.raw)
		}
	})
	t.Run("updates raise what they change", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("steps", "", "")).want(t, 201)
		patch := func(body string) reply {
			t.Helper()
			return s.send(t, "PATCH", daemonSets+"/steps", strategic, body).want(t, 200)
		}
		expect(t, patch(`{"metadata":{"labels":{"a":"b"}}}`), 1, 1)
		expect(t, patch(`{"spec":{"minReadySeconds":1}}`), 2, 1)
		expect(t, patch(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`), 3, 2)
		expect(t, patch(`{"spec":{"minReadySeconds":2,"template":{"spec":{"hostNetwork":true}}}}`), 4, 3)
		expect(t, patch(`{"spec":{"template":{"spec":{"nodeSelector":{}}}}}`), 4, 3)
		expect(t, patch(`{"metadata":{"generation":9,"annotations":{"deprecated.daemonset.template.generation":"9"}}}`), 4, 3)
		expect(t, patch(`{"metadata":{"annotations":{"deprecated.daemonset.template.generation":null}}}`), 4, 3)
		expect(t, patch(`{"metadata":{"annotations":null}}`), 4, 3)
		got := patch(`{"status":{"numberReady":5},"spec":{"minReadySeconds":3}}`)
		expect(t, got, 5, 3)
		got.expect(t, map[string]string{"status.numberReady": "0"})
	})
}

func TestStatus(t *testing.T) {
	s := start(t)
	t.Run("only the status and the metadata are taken from a status", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("partial", "", "")).want(t, 201)
		got := s.send(t, "PATCH", daemonSets+"/partial/status", mergePatch, `{"metadata":{"annotations":{"mine":"yes"},"labels":{"mine":"too"}},`+
			`"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"updateStrategy":{}},"status":{"numberReady":4}}`).want(t, 200)
		got.expect(t, map[string]string{
			"status.numberReady": "4", "metadata.annotations.mine": `"yes"`, "metadata.labels.mine": `"too"`, "metadata.generation": "1",
			generation: `"1"`, "spec.selector": `{"matchLabels":{"app":"partial"}}`, "spec.template.metadata.labels": `{"app":"partial"}`,
		})
		body := strings.TrimSuffix(daemonSet("partial", "", `,"minReadySeconds":9`), "}") + `,"status":{"numberReady":3}}`
		got = s.send(t, "PUT", daemonSets+"/partial/status", asJSON, body).want(t, 200)
		got.expect(t, map[string]string{"status.numberReady": "3", "spec.minReadySeconds": "null", "metadata.generation": "1"})
	})
	t.Run("numbers of a status are not negative", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("counted", "", "")).want(t, 201)
		var want []string
		var fields []string
		for _, f := range []string{"currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
			"updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount"} {
			fields = append(fields, fmt.Sprintf("%q:-1", f))
			want = append(want, "status."+f+": Invalid value: -1: must be greater than or equal to 0")
		}
		s.send(t, "PATCH", daemonSets+"/counted/status", mergePatch, `{"status":{`+strings.Join(fields, ",")+`}}`).
			says(t, 422, "Invalid", `DaemonSet.apps "counted" is invalid: [`+strings.Join(want, ", ")+"]")
	})
	t.Run("the collision count only grows", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("collided", "", "")).want(t, 201)
		s.send(t, "PATCH", daemonSets+"/collided/status", mergePatch, `{"status":{"collisionCount":2}}`).want(t, 200)
		s.send(t, "PATCH", daemonSets+"/collided/status", mergePatch, `{"status":{"collisionCount":1}}`).
			says(t, 422, "Invalid", `DaemonSet.apps "collided" is invalid: status.collisionCount: Invalid value: 1: cannot be decremented`)
	})
	t.Run("conditions of several managers are merged by their type", func(t *testing.T) {
		s.send(t, "POST", daemonSets, asJSON, daemonSet("judged", "", "")).want(t, 201)
		for _, kind := range []string{"One", "Two"} {
			body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"judged"},"status":{"conditions":[{"type":%q,"status":"True"}]}}`, kind)
			s.send(t, "PATCH", daemonSets+"/judged/status?fieldManager="+kind, serverApply, body).want(t, 200)
		}
		got := s.send(t, "GET", daemonSets+"/judged", asJSON, "").want(t, 200)
		var kinds []string
		for _, c := range got.at("status.conditions").([]any) {
			kinds = append(kinds, c.(map[string]any)["type"].(string))
		}
		if !slices.Contains(kinds, "One") || !slices.Contains(kinds, "Two") {
			t.Errorf("conditions are %q, want One and Two among them", kinds)
		}
	})
}

func TestDeleting(t *testing.T) {
	s := start(t)
	for name, options := range map[string]string{
		"without options it vanishes at once":         "",
		"orphanDependents false means the background": `{"orphanDependents":false}`,
		"background means at once":                    `{"propagationPolicy":"Background"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s.send(t, "POST", daemonSets, asJSON, daemonSet("gone", "", "")).want(t, 201)
			s.send(t, "DELETE", daemonSets+"/gone", asJSON, options).want(t, 200)
			s.send(t, "GET", daemonSets+"/gone", asJSON, "").want(t, 404)
		})
	}
	for name, c := range map[string]struct{ options, finalizers string }{
		"a finalizer keeps it":         {`{}`, `["example.com/held"]`},
		"foreground is a finalizer":    {`{"propagationPolicy":"Foreground"}`, `["foregroundDeletion","example.com/held"]`},
		"orphan is a finalizer":        {`{"propagationPolicy":"Orphan"}`, `["orphan","example.com/held"]`},
		"orphanDependents true is too": {`{"orphanDependents":true}`, `["orphan","example.com/held"]`},
	} {
		t.Run(name, func(t *testing.T) {
			id := "held-" + strings.ReplaceAll(strings.ToLower(strings.Fields(name)[0]+fmt.Sprint(len(name))), " ", "")
			s.send(t, "POST", daemonSets, asJSON, daemonSet(id, `,"finalizers":["example.com/held"]`, "")).want(t, 201)
			got := s.send(t, "DELETE", daemonSets+"/"+id, asJSON, c.options)
			if got.code != 200 && got.code != 202 {
				t.Fatalf("got %d: %s", got.code, got.raw)
			}
			got.expect(t, map[string]string{"metadata.generation": "2", "metadata.deletionGracePeriodSeconds": "0"})
			var have []string
			for _, f := range got.at("metadata.finalizers").([]any) {
				have = append(have, fmt.Sprintf("%q", f))
			}
			slices.Sort(have)
			want := strings.Split(strings.Trim(c.finalizers, "[]"), ",")
			slices.Sort(want)
			if !slices.Equal(have, want) || got.at("metadata.deletionTimestamp") == nil {
				t.Errorf("finalizers are %s, want %s; deleted at %v", have, want, got.at("metadata.deletionTimestamp"))
			}
			s.send(t, "PATCH", daemonSets+"/"+id, mergePatch, `{"metadata":{"finalizers":null}}`).want(t, 200)
			s.send(t, "GET", daemonSets+"/"+id, asJSON, "").want(t, 404)
		})
	}
}
