package malformed

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestDeepPatchesAreRefused(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"a":`, n) + `"}]"` + strings.Repeat("}", n) }
	const merge, steps, strategic = "application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json"
	for name, c := range map[string]struct {
		method, kind, body string
		refused            bool
	}{
		"as deep as may be":        {http.MethodPatch, merge, nested(64), false},
		"deeper":                   {http.MethodPatch, merge, nested(65), true},
		"deeper, with a parameter": {http.MethodPatch, merge + "; charset=utf-8", nested(65), true},
		"deep lists":               {http.MethodPatch, merge, strings.Repeat("[", 65) + strings.Repeat("]", 65), true},
		"braces in a string":       {http.MethodPatch, merge, `{"a":"\"` + strings.Repeat("{", 100) + `"}`, false},
		"many siblings":            {http.MethodPatch, merge, `{"a":[` + strings.Repeat("{},", 1000) + `{}]}`, false},
		"a deep value": {http.MethodPatch, steps, `[{"op":"add","path":"/a","value":` + nested(64) + `}]`,
			true},
		"a long path": {http.MethodPatch, steps,
			`[{"op":"remove","path":"` + strings.Repeat("/a", 65) + `"}]`, true},
		"a long source": {http.MethodPatch, steps,
			`[{"op":"copy","path":"/a","from":"` + strings.Repeat("/a", 65) + `"}]`, true},
		"no patch":             {http.MethodPatch, steps, `{`, false},
		"too large to look at": {http.MethodPatch, merge, nested(65) + strings.Repeat(" ", maxBody), false},
		"applied in one go":    {http.MethodPatch, strategic, nested(65), false},
		"not a patch":          {http.MethodPut, merge, nested(65), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, "/", strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.kind)
			if err := checkPatch(r); (err != nil) != c.refused {
				t.Errorf("got %v, refused should be %v", err, c.refused)
			}
			if left, err := io.ReadAll(r.Body); err != nil || string(left) != c.body {
				t.Errorf("the body became %.100q: %v", left, err)
			}
		})
	}
}
