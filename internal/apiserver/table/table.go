// Package table renders API objects as the rows that `kubectl get` prints.
//
// A kind describes its columns once and gives one function from an object to
// its cells; lists, single objects, headers and paging are handled here.
package table

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Column is one column of a table. Wide columns are shown with `-o wide` only.
type Column struct {
	Name string
	// Type is the OpenAPI type of the cells: string (the default), integer, boolean, date.
	Type string
	// Format refines Type; "name" marks the object's name.
	Format      string
	Description string
	Wide        bool
}

// Name is the first column of nearly every table.
var Name = Column{Name: "Name", Format: "name", Description: "Name must be unique within a namespace."}

// Age is the column of the time since an object's creation.
var Age = Column{Name: "Age", Description: "Time since the object was created."}

// Of returns a converter for objects of type T. row returns one cell per
// column, in order, for the given time.
func Of[T any](row func(obj *T, now time.Time) []any, columns ...Column) rest.TableConvertor {
	c := &converter[T]{row: row}
	for _, col := range columns {
		c.columns = append(c.columns, col.definition())
	}
	return c
}

func (c Column) definition() metav1.TableColumnDefinition {
	d := metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description}
	if d.Type == "" {
		d.Type = "string"
	}
	if c.Wide {
		d.Priority = 1
	}
	return d
}

type converter[T any] struct {
	columns []metav1.TableColumnDefinition
	row     func(*T, time.Time) []any
}

// ConvertToTable implements rest.TableConvertor for one object or a list.
func (c *converter[T]) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	out := &metav1.Table{}
	if opts, ok := options.(*metav1.TableOptions); !ok || !opts.NoHeaders {
		out.ColumnDefinitions = c.columns
	}
	now := time.Now()
	add := func(o runtime.Object) error {
		t, ok := o.(any).(*T)
		if !ok {
			return fmt.Errorf("print %T: want %T", o, new(T))
		}
		out.Rows = append(out.Rows, metav1.TableRow{Cells: c.row(t, now), Object: runtime.RawExtension{Object: o}})
		return nil
	}
	if !meta.IsListType(obj) {
		if m, err := meta.CommonAccessor(obj); err == nil {
			out.ResourceVersion = m.GetResourceVersion()
		}
		return out, add(obj)
	}
	if m, err := meta.ListAccessor(obj); err == nil {
		out.ResourceVersion, out.Continue = m.GetResourceVersion(), m.GetContinue()
		out.RemainingItemCount = m.GetRemainingItemCount()
	}
	return out, meta.EachListItem(obj, add)
}

// Since renders the time from t to now as kubectl does, "<unknown>" for no time.
func Since(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// OrAll returns a selector as text, or "<all>" when it selects everything.
func OrAll(s *metav1.LabelSelector) string {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return "<all>"
	}
	return metav1.FormatLabelSelector(s)
}

// OrNone returns s, or "<none>" when it is empty.
func OrNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
