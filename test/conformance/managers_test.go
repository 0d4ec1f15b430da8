package conformance

import (
	"net/url"
	"strings"
	"testing"
)

// A name of a field manager that nobody may have is refused in few words, however long it
// is and whatever is in it.
func TestNamesOfManagersThatNobodyMayHave(t *testing.T) {
	s := start(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	s.send(t, "POST", maps, asJSON, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`).want(t, 201)
	for name, manager := range map[string]string{"long": strings.Repeat("a", 70_000), "not to be printed": strings.Repeat(`\u0000`, 70_000)} {
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME","managedFields":[{"manager":"` + manager +
			`","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]}}`
		inQuery := "?fieldManager=" + url.QueryEscape(strings.ReplaceAll(manager, `\u0000`, "\x00"))
		for what, got := range map[string]reply{
			"created":              s.send(t, "POST", maps, asJSON, strings.Replace(body, "NAME", "n", 1)),
			"replaced":             s.send(t, "PUT", maps+"/m", asJSON, strings.Replace(body, "NAME", "m", 1)),
			"patched":              s.send(t, "PATCH", maps+"/m", mergePatch, strings.Replace(body, "NAME", "m", 1)),
			"created by its query": s.send(t, "POST", maps+inQuery, asJSON, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"}}`),
			"patched by its query": s.send(t, "PATCH", maps+"/m"+inQuery, mergePatch, `{"data":{"a":"b"}}`),
		} {
			if got.code != 422 || len(got.raw) > 1<<20 || !strings.Contains(string(got.raw), "Too long: may not be more than 128 bytes") {
				t.Errorf("%s, %s: %d, %d bytes: %.300s", name, what, got.code, len(got.raw), got.raw)
			}
		}
	}
}
