// Package gitops asks in tests what the tools of GitOps think of an object: Flux by kstatus, Argo CD by the Lua that
// examples/argocd-health.yaml gives it.
package gitops

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/examples"
)

// Flux is the status that kstatus computes.
func Flux(t testing.TB, obj any) string {
	t.Helper()
	u := &unstructured.Unstructured{Object: plain(t, obj)}
	result, err := status.Compute(u)
	if err != nil {
		t.Fatalf("kstatus of %s %s: %v", u.GetKind(), u.GetName(), err)
	}
	return result.Status.String()
}

// ArgoCD is the health that Argo CD computes, with its message. The object must say its kind.
func ArgoCD(t testing.TB, obj any) (health, message string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: plain(t, obj)}
	var settings corev1.ConfigMap
	raw, err := examples.Files.ReadFile("argocd-health.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(raw, &settings)
	}
	if err != nil {
		t.Fatalf("read examples/argocd-health.yaml: %v", err)
	}
	key := fmt.Sprintf("resource.customizations.health.%s_%s", u.GroupVersionKind().Group, u.GetKind())
	script, ok := settings.Data[key]
	if !ok {
		t.Fatalf("there is no %s", key)
	}
	// As in Argo CD: no library but those that touch nothing.
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString,
	} {
		err = l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name))
		if err != nil {
			t.Fatalf("open Lua's library %s: %v", name, err)
		}
	}
	l.SetGlobal("obj", value(l, u.Object))
	err = l.DoString(script)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	answer, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("%s returns a %s", key, l.Get(-1).Type())
	}
	return lua.LVAsString(answer.RawGetString("status")), lua.LVAsString(answer.RawGetString("message"))
}

// plain is an object as JSON has it, with whole numbers.
func plain(t testing.TB, obj any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var u unstructured.Unstructured
	err = u.UnmarshalJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Object
}

// value is a value of JSON in Lua.
func value(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		out := l.NewTable()
		for key, of := range v {
			out.RawSetString(key, value(l, of))
		}
		return out
	case []any:
		out := l.NewTable()
		for _, of := range v {
			out.Append(value(l, of))
		}
		return out
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}
