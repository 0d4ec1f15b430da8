// Package event describes the kind Event of core/v1, which is also what
// events.k8s.io/v1 shows.
package event

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// lifetimeSeconds is how long events are kept.
const lifetimeSeconds = 60 * 60

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.Event, corev1.EventList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "Event",
		Plural: "events", Singular: "event", ShortNames: []string{"ev"},
	}, resource.Rules[corev1.Event]{
		Validate:            func(_ context.Context, e *corev1.Event) field.ErrorList { return Validate(e) },
		AllowCreateOnUpdate: true,
		TTL:                 func(*corev1.Event) uint64 { return lifetimeSeconds },
		Fields:              selectable,
		FieldLabels: []string{"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
			"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
			"reportingComponent", "source", "type"},
		Table: printer,
	})
}

func selectable(e *corev1.Event) fields.Set {
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	o := e.InvolvedObject
	return fields.Set{
		"involvedObject.kind": o.Kind, "involvedObject.namespace": o.Namespace, "involvedObject.name": o.Name,
		"involvedObject.uid": string(o.UID), "involvedObject.apiVersion": o.APIVersion,
		"involvedObject.resourceVersion": o.ResourceVersion, "involvedObject.fieldPath": o.FieldPath,
		"reason": e.Reason, "reportingComponent": e.ReportingController, "source": source, "type": e.Type,
	}
}

// clusterNamespace is, besides default, where events about objects without a
// namespace live.
const clusterNamespace = "kube-system"

// Validate checks an event, metadata aside: it lives where its object lives.
func Validate(e *corev1.Event) field.ErrorList {
	path := field.NewPath("involvedObject", "namespace")
	switch {
	case e.InvolvedObject.Namespace == "" && e.Namespace != "default" && e.Namespace != clusterNamespace:
		return field.ErrorList{field.Invalid(path, e.InvolvedObject.Namespace, "does not match event.namespace")}
	case e.InvolvedObject.Namespace != "" && e.Namespace != e.InvolvedObject.Namespace:
		return field.ErrorList{field.Invalid(path, e.InvolvedObject.Namespace, "does not match event.namespace")}
	}
	return nil
}

var printer = table.Of(row,
	table.Column{Name: "Last Seen", Description: "Time since it happened last."},
	table.Column{Name: "Type", Description: "Normal or Warning."},
	table.Column{Name: "Reason", Description: "What happened, in one word."},
	table.Column{Name: "Object", Description: "What it happened to."},
	table.Column{Name: "Subobject", Wide: true, Description: "Part of the object."},
	table.Column{Name: "Source", Wide: true, Description: "Who reports it."},
	table.Column{Name: "Message", Description: "What happened."},
	table.Column{Name: "First Seen", Wide: true, Description: "Time since it happened first."},
	table.Column{Name: "Count", Wide: true, Description: "How often it happened."},
	table.Column{Name: "Name", Format: "name", Wide: true, Description: "Name of the event."},
)

func row(e *corev1.Event, now time.Time) []any {
	first := table.Since(e.FirstTimestamp, now)
	if e.FirstTimestamp.IsZero() {
		first = since(e.EventTime.Time, now)
	}
	last := table.Since(e.LastTimestamp, now)
	if e.LastTimestamp.IsZero() {
		last = first
	}
	count := e.Count
	if e.Series != nil {
		last, count = since(e.Series.LastObservedTime.Time, now), e.Series.Count
	} else if count == 0 {
		count = 1
	}
	object := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		object += "/" + e.InvolvedObject.Name
	}
	return []any{
		last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, source(e),
		strings.TrimSpace(e.Message), first, int64(count), e.Name,
	}
}

func since(t, now time.Time) string {
	return table.Since(metav1.NewTime(t), now)
}

func source(e *corev1.Event) string {
	component, host := e.Source.Component, e.Source.Host
	if component == "" {
		component, host = e.ReportingController, e.ReportingInstance
	}
	if host == "" {
		return component
	}
	return fmt.Sprintf("%s, %s", component, host)
}
