package scheme

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// eventsVersion is the newer API of events; its objects are stored as core/v1
// events, so that both APIs show the same ones.
var eventsVersion = eventsv1.SchemeGroupVersion

func addEvents(s *runtime.Scheme) { utilruntime.Must(eventsv1.AddToScheme(s)) }

// addEventConversion makes core/v1 Event the internal type of events.k8s.io.
func addEventConversion(s *runtime.Scheme) {
	internal := schema.GroupVersion{Group: eventsVersion.Group, Version: runtime.APIVersionInternal}
	s.AddKnownTypes(internal, &corev1.Event{}, &corev1.EventList{})
	add := func(from, to any, f conversion.ConversionFunc) { utilruntime.Must(s.AddConversionFunc(from, to, f)) }
	add((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(a, b any, _ conversion.Scope) error {
		fromEventsV1(a.(*eventsv1.Event), b.(*corev1.Event))
		return nil
	})
	add((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(a, b any, _ conversion.Scope) error {
		toEventsV1(a.(*corev1.Event), b.(*eventsv1.Event))
		return nil
	})
	add((*eventsv1.EventList)(nil), (*corev1.EventList)(nil), func(a, b any, _ conversion.Scope) error {
		in, out := a.(*eventsv1.EventList), b.(*corev1.EventList)
		out.ListMeta = in.ListMeta
		out.Items = make([]corev1.Event, len(in.Items))
		for i := range in.Items {
			fromEventsV1(&in.Items[i], &out.Items[i])
		}
		return nil
	})
	add((*corev1.EventList)(nil), (*eventsv1.EventList)(nil), func(a, b any, _ conversion.Scope) error {
		in, out := a.(*corev1.EventList), b.(*eventsv1.EventList)
		out.ListMeta = in.ListMeta
		out.Items = make([]eventsv1.Event, len(in.Items))
		for i := range in.Items {
			toEventsV1(&in.Items[i], &out.Items[i])
		}
		return nil
	})
	utilruntime.Must(s.AddFieldLabelConversionFunc(
		eventsVersion.WithKind("Event"),
		func(label, value string) (string, string, error) {
			if known, ok := eventFields[label]; ok {
				return known, value, nil
			}
			return "", "", fmt.Errorf("field label not supported: %s", label)
		},
	))
}

// eventFields maps the field selectors of events.k8s.io to those of core/v1.
var eventFields = map[string]string{
	"metadata.name":             "metadata.name",
	"metadata.namespace":        "metadata.namespace",
	"reason":                    "reason",
	"type":                      "type",
	"reportingController":       "reportingComponent",
	"regarding.kind":            "involvedObject.kind",
	"regarding.namespace":       "involvedObject.namespace",
	"regarding.name":            "involvedObject.name",
	"regarding.uid":             "involvedObject.uid",
	"regarding.apiVersion":      "involvedObject.apiVersion",
	"regarding.fieldPath":       "involvedObject.fieldPath",
	"regarding.resourceVersion": "involvedObject.resourceVersion",
}

func fromEventsV1(in *eventsv1.Event, out *corev1.Event) {
	*out = corev1.Event{
		ObjectMeta: in.ObjectMeta, InvolvedObject: in.Regarding, Reason: in.Reason, Message: in.Note, Type: in.Type,
		Source: in.DeprecatedSource, FirstTimestamp: in.DeprecatedFirstTimestamp, LastTimestamp: in.DeprecatedLastTimestamp,
		Count: in.DeprecatedCount, EventTime: in.EventTime, Action: in.Action, Related: in.Related,
		ReportingController: in.ReportingController, ReportingInstance: in.ReportingInstance,
	}
	if in.Series != nil {
		out.Series = &corev1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
}

func toEventsV1(in *corev1.Event, out *eventsv1.Event) {
	*out = eventsv1.Event{
		TypeMeta:   metav1.TypeMeta{},
		ObjectMeta: in.ObjectMeta, Regarding: in.InvolvedObject, Reason: in.Reason, Note: in.Message, Type: in.Type,
		DeprecatedSource: in.Source, DeprecatedFirstTimestamp: in.FirstTimestamp, DeprecatedLastTimestamp: in.LastTimestamp,
		DeprecatedCount: in.Count, EventTime: in.EventTime, Action: in.Action, Related: in.Related,
		ReportingController: in.ReportingController, ReportingInstance: in.ReportingInstance,
	}
	if in.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
}
