// Package controllerrevision describes the kind ControllerRevision of apps/v1:
// a past state of a workload's template, kept for going back to it.
package controllerrevision

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[appsv1.ControllerRevision, appsv1.ControllerRevisionList](resource.Kind{
		GroupVersion: appsv1.SchemeGroupVersion, Kind: "ControllerRevision",
		Plural: "controllerrevisions", Singular: "controllerrevision",
	}, resource.Rules[appsv1.ControllerRevision]{
		Unreadable: unreadable,
		Validate:   func(_ context.Context, r *appsv1.ControllerRevision) field.ErrorList { return Validate(r) },
		ValidateUpdate: func(_ context.Context, r, old *appsv1.ControllerRevision) field.ErrorList {
			errs := Validate(r)
			if holdSame(r, old) {
				return errs
			}
			return append(errs, alike.Unchanged(r.Data, old.Data, field.NewPath("data"))...)
		},
		Table: printer,
	})
}

// holdSame reports whether two revisions hold the same: who merges a patch into one writes its keys in order.
func holdSame(a, b *appsv1.ControllerRevision) bool {
	var x, y any
	read := utiljson.Unmarshal(a.Data.Raw, &x) == nil && utiljson.Unmarshal(b.Data.Raw, &y) == nil
	return read && reflect.DeepEqual(x, y)
}

// unreadable says whether the data is anything at all. JSON leaves that open, as
// it does not look into it, and protobuf may bring any bytes.
func unreadable(r *appsv1.ControllerRevision) error {
	raw, err := r.Data.MarshalJSON()
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	var data any
	if err := utiljson.Unmarshal(raw, &data); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	return nil
}

// Validate checks a revision, metadata aside: its data is a JSON object.
func Validate(r *appsv1.ControllerRevision) field.ErrorList {
	path := field.NewPath("data")
	var errs field.ErrorList
	if r.Data.Raw == nil && r.Data.Object == nil {
		errs = append(errs, field.Required(path, "data is mandatory"))
	} else if r.Data.Object == nil && !isObject(r.Data.Raw) {
		errs = append(errs, field.Required(path, "data must be a valid JSON object"))
	}
	return append(errs, amount.NonNegative(field.NewPath("revision"), r.Revision)...)
}

func isObject(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
}

// controller names the owner as kubectl would, such as "daemonset.apps/agent".
func controller(r *appsv1.ControllerRevision) string {
	ref := metav1.GetControllerOf(r)
	if ref == nil {
		return "<none>"
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group == "" {
		return strings.ToLower(ref.Kind) + "/" + ref.Name
	}
	return strings.ToLower(ref.Kind) + "." + gv.Group + "/" + ref.Name
}

var printer = table.Of(func(r *appsv1.ControllerRevision, now time.Time) []any {
	return []any{r.Name, controller(r), r.Revision, table.Since(r.CreationTimestamp, now)}
},
	table.Name,
	table.Column{Name: "Controller", Description: "Owner of the revision."},
	table.Column{Name: "Revision", Description: "Number of the revision."},
	table.Age,
)
