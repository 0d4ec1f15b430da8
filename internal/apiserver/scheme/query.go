package scheme

import (
	"fmt"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// addQueries reads the options of pods' subresources from a URL's query. The
// k8s.io/api types come without these conversions.
func addQueries(s *runtime.Scheme) {
	query[corev1.PodLogOptions](s, func(q reader, o *corev1.PodLogOptions) {
		o.Container = q.text("container")
		o.Follow, o.Previous, o.Timestamps = q.flag("follow"), q.flag("previous"), q.flag("timestamps")
		o.InsecureSkipTLSVerifyBackend = q.flag("insecureSkipTLSVerifyBackend")
		o.SinceSeconds, o.TailLines, o.LimitBytes = q.number("sinceSeconds"), q.number("tailLines"), q.number("limitBytes")
		o.SinceTime = q.time("sinceTime")
		if stream := q.text("stream"); stream != "" {
			o.Stream = &stream
		}
	})
	query[corev1.PodExecOptions](s, func(q reader, o *corev1.PodExecOptions) {
		o.Stdin, o.Stdout, o.Stderr, o.TTY = q.flag("stdin"), q.flag("stdout"), q.flag("stderr"), q.flag("tty")
		o.Container, o.Command = q.text("container"), q.values["command"]
	})
	query[corev1.PodAttachOptions](s, func(q reader, o *corev1.PodAttachOptions) {
		o.Stdin, o.Stdout, o.Stderr, o.TTY = q.flag("stdin"), q.flag("stdout"), q.flag("stderr"), q.flag("tty")
		o.Container = q.text("container")
	})
	query[corev1.PodPortForwardOptions](s, func(q reader, o *corev1.PodPortForwardOptions) { o.Ports = q.ports("ports") })
	query[corev1.PodProxyOptions](s, func(q reader, o *corev1.PodProxyOptions) { o.Path = q.text("path") })
	query[corev1.ServiceProxyOptions](s, func(q reader, o *corev1.ServiceProxyOptions) { o.Path = q.text("path") })
	query[corev1.NodeProxyOptions](s, func(q reader, o *corev1.NodeProxyOptions) { o.Path = q.text("path") })
}

// query registers how a T is read from a query.
func query[T any](s *runtime.Scheme, read func(reader, *T)) {
	utilruntime.Must(s.AddConversionFunc((*url.Values)(nil), (*T)(nil), func(a, b any, _ conversion.Scope) error {
		var err error
		read(reader{values: *a.(*url.Values), err: &err}, b.(*T))
		return err
	}))
}

// reader reads parameters and keeps the first error.
type reader struct {
	values url.Values
	err    *error
}

func (q reader) fail(name, value, want string) {
	if *q.err == nil {
		*q.err = fmt.Errorf("parameter %s: %q is not %s", name, value, want)
	}
}

func (q reader) text(name string) string { return q.values.Get(name) }

// flag is true for the parameter without a value and for any value that is not
// a way to write false, as in Kubernetes.
func (q reader) flag(name string) bool {
	if !q.values.Has(name) {
		return false
	}
	switch q.values.Get(name) {
	case "false", "0":
		return false
	}
	return true
}

func (q reader) number(name string) *int64 {
	text := q.values.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		q.fail(name, text, "a whole number")
		return nil
	}
	return &n
}

func (q reader) time(name string) *metav1.Time {
	text := q.values.Get(name)
	if text == "" {
		return nil
	}
	var t metav1.Time
	if err := t.UnmarshalQueryParameter(text); err != nil {
		q.fail(name, text, "a time such as 2006-01-02T15:04:05Z")
		return nil
	}
	return &t
}

func (q reader) ports(name string) (out []int32) {
	for _, text := range q.values[name] {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			q.fail(name, text, "a port number")
			continue
		}
		out = append(out, int32(n))
	}
	return out
}
