package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/internal/beside/admit"
)

// difference lists the fields in which two DaemonSets differ, status and bookkeeping left out.
func difference(old, new *appsv1.DaemonSet) ([]Field, error) {
	before, err := fields(old)
	if err != nil {
		return nil, err
	}
	after, err := fields(new)
	if err != nil {
		return nil, err
	}
	d := &differ{onDelete: new.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType}
	d.compare("", before, after)
	return d.out, nil
}

// fields is what people write of a DaemonSet.
func fields(ds *appsv1.DaemonSet) (map[string]any, error) {
	annotations := maps.Clone(ds.Annotations)
	delete(annotations, appsv1.DeprecatedTemplateGeneration)
	delete(annotations, admit.UpdateStrategy)
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	raw, err := json.Marshal(map[string]any{"labels": ds.Labels, "annotations": annotations, "spec": ds.Spec})
	if err != nil {
		return nil, fmt.Errorf("encode DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	var out map[string]any
	return out, json.Unmarshal(raw, &out)
}

type differ struct {
	onDelete bool
	out      []Field
}

const inTemplate = "spec.template."

func (d *differ) compare(path string, a, b any) {
	if reflect.DeepEqual(a, b) || empty(a) && empty(b) {
		return
	}
	x, isMap := a.(map[string]any)
	y, areMaps := b.(map[string]any)
	// A map that is not there at all is one without fields.
	if (isMap || a == nil) && (areMaps || b == nil) && (isMap || areMaps) {
		for _, k := range keysOf(x, y) {
			d.compare(join(path, k), x[k], y[k])
		}
		return
	}
	if names, of, ok := named(a, b); ok {
		for _, name := range names {
			d.compare(path+"["+name+"]", unnamed(of[0][name]), unnamed(of[1][name]))
		}
		return
	}
	replaces := strings.HasPrefix(path, inTemplate) && !d.onDelete
	d.out = append(d.out, Field{Path: shorten(path), From: text(a), To: text(b), ReplacesPods: replaces})
}

// keysOf are the keys of x, and then those that only y has.
func keysOf(x, y map[string]any) []string {
	keys := slices.Sorted(maps.Keys(x))
	for _, k := range slices.Sorted(maps.Keys(y)) {
		if _, both := x[k]; !both {
			keys = append(keys, k)
		}
	}
	return keys
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// shorten leaves out what all fields of the template's pods have in common.
func shorten(path string) string {
	if rest, ok := strings.CutPrefix(path, inTemplate+"spec."); ok {
		return rest
	}
	return strings.TrimPrefix(path, "spec.")
}

// named reports whether both are lists of things with names, and returns the names in order with what they name. Things
// that were only moved are not told apart from such as stayed.
func named(a, b any) (names []string, of [2]map[string]any, ok bool) {
	for i, list := range []any{a, b} {
		of[i] = map[string]any{}
		items, isList := list.([]any)
		if !isList && list != nil {
			return nil, of, false
		}
		for _, item := range items {
			fields, isMap := item.(map[string]any)
			name, hasName := fields["name"].(string)
			if !isMap || !hasName || of[i][name] != nil {
				return nil, of, false
			}
			of[i][name] = item
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, of, len(names) > 0
}

// unnamed leaves out the name, which the path says, unless there is nothing else.
func unnamed(item any) any {
	fields, ok := item.(map[string]any)
	if !ok || len(fields) < 2 {
		return item
	}
	out := maps.Clone(fields)
	delete(out, "name")
	return out
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// text writes a value on one line; "" for one that is not there.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}
