package podsecurity

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func newPlugin(t *testing.T, objects ...runtime.Object) admission.ValidationInterface {
	t.Helper()
	empty := corelisters.NewNamespaceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
	p, err := New(empty, fake.NewClientset(objects...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func attributesOf(namespace string, resource schema.GroupVersionResource, obj, old runtime.Object) admission.Attributes {
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{}, namespace, "x", resource, "", operation, nil, false, &user.DefaultInfo{Name: "jane"})
}

func TestStandards(t *testing.T) {
	pods, daemonSets := corev1.SchemeGroupVersion.WithResource("pods"), appsv1.SchemeGroupVersion.WithResource("daemonsets")
	plugin := newPlugin(t, namespace("open", nil),
		namespace("guarded", map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}),
		namespace("warned", map[string]string{"pod-security.kubernetes.io/warn": "baseline"}))
	hostPath := corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
	}
	plain := corev1.PodSpec{Containers: hostPath.Containers}
	template := corev1.PodTemplateSpec{Spec: hostPath}
	daemon, jobs := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: template}}, batchv1.JobSpec{Template: template}
	cases := []struct {
		name, namespace string
		resource        schema.GroupVersionResource
		obj             runtime.Object
		refused, warned string
	}{
		{"anything where nothing is asked", "open", pods, &corev1.Pod{Spec: hostPath}, "", ""},
		{"plain pod", "guarded", pods, &corev1.Pod{Spec: plain}, "", ""},
		{"host path", "guarded", pods, &corev1.Pod{Spec: hostPath}, `violates PodSecurity "baseline:latest": hostPath volumes (volume "v")`, ""},
		{"host path is only warned of", "warned", pods, &corev1.Pod{Spec: hostPath}, "", `would violate PodSecurity "baseline:latest": hostPath volumes`},
		{"daemon set is written with a warning", "guarded", daemonSets, daemon, "", `would violate PodSecurity "baseline:latest": hostPath volumes`},
		{"daemon set is warned of", "warned", daemonSets, daemon, "", `would violate PodSecurity "baseline:latest": hostPath volumes`},
		{"stateful set", "guarded", appsv1.SchemeGroupVersion.WithResource("statefulsets"),
			&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: template}}, "", `would violate PodSecurity "baseline:latest": hostPath volumes`},
		{"job", "guarded", batchv1.SchemeGroupVersion.WithResource("jobs"), &batchv1.Job{Spec: jobs}, "", `would violate PodSecurity "baseline:latest": hostPath volumes`},
		{"cron job", "guarded", batchv1.SchemeGroupVersion.WithResource("cronjobs"),
			&batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: jobs}}}, "", `would violate PodSecurity "baseline:latest": hostPath volumes`},
		{"other kinds", "guarded", corev1.SchemeGroupVersion.WithResource("secrets"), &corev1.Secret{}, "", ""},
	}
	for _, c := range cases {
		var got warnings
		ctx := warning.WithWarningRecorder(context.Background(), &got)
		err := plugin.Validate(ctx, attributesOf(c.namespace, c.resource, c.obj, nil), nil)
		if (err == nil) != (c.refused == "") || (err != nil && (!strings.Contains(err.Error(), c.refused) || !apierrors.IsForbidden(err))) {
			t.Errorf("%s: %v, want %q", c.name, err, c.refused)
		}
		if (len(got) == 0) != (c.warned == "") || !strings.Contains(strings.Join(got, ""), c.warned) {
			t.Errorf("%s: warnings %q, want %q", c.name, got, c.warned)
		}
	}
}

func TestNamespaceLabels(t *testing.T) {
	plugin := newPlugin(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Spec: corev1.PodSpec{HostNetwork: true}})
	resource := corev1.SchemeGroupVersion.WithResource("namespaces")
	wrong := namespace("n", map[string]string{"pod-security.kubernetes.io/enforce": "strict"})
	if err := plugin.Validate(t.Context(), attributesOf("", resource, wrong, nil), nil); err == nil || !strings.Contains(err.Error(), "must be one of privileged, baseline, restricted") {
		t.Errorf("an unknown level: %v", err)
	}
	var got warnings
	guarded := namespace("n", map[string]string{"pod-security.kubernetes.io/enforce": "baseline"})
	a := admission.NewAttributesRecord(guarded, namespace("n", nil), schema.GroupVersionKind{}, "n", "n", resource, "", admission.Update, nil, false, &user.DefaultInfo{})
	if err := plugin.Validate(warning.WithWarningRecorder(t.Context(), &got), a, nil); err != nil || !strings.Contains(strings.Join(got, " "), "host namespaces") {
		t.Errorf("pods that are there: %v, warnings %q", err, got)
	}
}
