package livecontent

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
)

const controller = "system:serviceaccount:kube-system:daemon-set-controller"

var id = strings.Repeat("b", 24)

// getter is a storage in memory.
type getter map[string]runtime.Object

func (g getter) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if o, is := g[name]; is {
		return o, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

func owned() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet", Name: "agent", UID: "ds", Controller: new(true)}}
}

func secret(name string, change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{Immutable: new(true), ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owned(), Labels: map[string]string{content.Label: content.IsCopy}}}
	if change != nil {
		change(s)
	}
	return s
}

// pod is one of the DaemonSet that names the Secret token, pointed at a copy of that; "" for none.
func pod(t *testing.T, copied string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent-1", OwnerReferences: owned(), Labels: map[string]string{content.RevisionLabel: "t." + id}}}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token"}}}}
	if copied != "" {
		to := content.Pointing{Content: id, At: time.Unix(1, 0), Volumes: []content.Pointed{{Ref: content.Ref{Kind: content.Secret, Name: "token"}, Copy: copied}}}
		text, err := to.Text()
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = map[string]string{content.LiveName: text}
	}
	return p
}

// Nobody but the DaemonSet controller says what a running pod shows, by any way there is: a stolen node would read
// Secrets by it, and so would who may only patch pods.
func TestWhoMaySayWhatAPodShows(t *testing.T) {
	good := "token-" + id
	plugin := New(controller, &Stored{ConfigMaps: getter{}, Secrets: getter{good: secret(good, nil)}})
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: pod(t, good).Annotations}}
	for name, c := range map[string]struct {
		who, sub string
		op       admission.Operation
		old, now runtime.Object
		want     bool
	}{
		"the controller":               {controller, "", admission.Update, pod(t, ""), pod(t, good), true},
		"a user":                       {"alice", "", admission.Update, pod(t, ""), pod(t, good), false},
		"an administrator":             {"system:admin", "", admission.Update, pod(t, ""), pod(t, good), false},
		"a node, through the status":   {"system:node:n1", "status", admission.Update, pod(t, ""), pod(t, good), false},
		"the controller's status":      {controller, "status", admission.Update, pod(t, ""), pod(t, good), false},
		"a user's resize":              {"alice", "resize", admission.Update, pod(t, ""), pod(t, good), false},
		"a new pod":                    {"alice", "", admission.Create, nil, pod(t, good), false},
		"a node's mirror pod":          {"system:node:n1", "", admission.Create, nil, pod(t, good), false},
		"a new pod of the controller":  {controller, "", admission.Create, nil, pod(t, good), false},
		"a binding":                    {"system:kube-scheduler", "binding", admission.Create, nil, binding, false},
		"somebody takes it away":       {"alice", "", admission.Update, pod(t, good), pod(t, ""), false},
		"a node leaves it as it is":    {"system:node:n1", "status", admission.Update, pod(t, good), pod(t, good), true},
		"a pod that never had it":      {"alice", "", admission.Update, pod(t, ""), pod(t, ""), true},
		"a new pod that never had it":  {"alice", "", admission.Create, nil, pod(t, ""), true},
		"the controller takes it away": {controller, "", admission.Update, pod(t, good), pod(t, ""), false},
	} {
		err := validate(t, plugin, c.who, c.sub, c.op, c.old, c.now)
		if (err == nil) != c.want || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// asked is a pod whose node is asked for an image; "" for none.
func asked(t *testing.T, image string) *corev1.Pod {
	t.Helper()
	p := pod(t, "")
	if image == "" {
		return p
	}
	r := fetch.Request{Revision: "b", At: time.Unix(1, 0), Images: []fetch.Image{{Image: image}}}
	text, err := r.Text()
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations = map[string]string{fetch.Name: text}
	return p
}

// Nobody but the DaemonSet controller has nodes pull images that no pod of theirs names.
func TestWhoMayAskForImages(t *testing.T) {
	plugin := New(controller, &Stored{})
	broken := asked(t, "")
	broken.Annotations = map[string]string{fetch.Name: "{}"}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: asked(t, "a").Annotations}}
	for name, c := range map[string]struct {
		who, sub string
		op       admission.Operation
		old, now runtime.Object
		want     bool
	}{
		"the controller":                  {controller, "", admission.Update, asked(t, ""), asked(t, "a"), true},
		"the controller asks for another": {controller, "", admission.Update, asked(t, "a"), asked(t, "b"), true},
		"the controller takes it back":    {controller, "", admission.Update, asked(t, "a"), asked(t, ""), true},
		"the controller writes nonsense":  {controller, "", admission.Update, asked(t, ""), broken, false},
		"a user":                          {"alice", "", admission.Update, asked(t, ""), asked(t, "a"), false},
		"an administrator":                {"system:admin", "", admission.Update, asked(t, ""), asked(t, "a"), false},
		"a node, through the status":      {"system:node:n1", "status", admission.Update, asked(t, ""), asked(t, "a"), false},
		"a node takes it back":            {"system:node:n1", "status", admission.Update, asked(t, "a"), asked(t, ""), false},
		"a new pod":                       {"alice", "", admission.Create, nil, asked(t, "a"), false},
		"a node's mirror pod":             {"system:node:n1", "", admission.Create, nil, asked(t, "a"), false},
		"a binding":                       {"system:kube-scheduler", "binding", admission.Create, nil, binding, false},
		"a node answers":                  {"system:node:n1", "status", admission.Update, asked(t, "a"), asked(t, "a"), true},
	} {
		err := validate(t, plugin, c.who, c.sub, c.op, c.old, c.now)
		if (err == nil) != c.want || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The controller itself points pods only at immutable copies that the pod's DaemonSet owns, of what the pod names.
func TestWhatAPodMayBePointedAt(t *testing.T) {
	good := "token-" + id
	for name, c := range map[string]struct {
		copied string
		change func(*corev1.Secret)
		pod    func(*corev1.Pod)
		want   string
	}{
		"a copy":               {good, nil, nil, ""},
		"another's name":       {"stolen", nil, nil, "is the name of no copy of Secret token"},
		"a copy of another":    {"other-" + id, nil, nil, "is the name of no copy of Secret token"},
		"what is not there":    {"token-" + strings.Repeat("c", 24), nil, nil, "there is no Secret token-ccc"},
		"what can change":      {good, func(s *corev1.Secret) { s.Immutable = nil }, nil, "no immutable copy"},
		"what is no copy":      {good, func(s *corev1.Secret) { s.Labels = nil }, nil, "no immutable copy"},
		"another's copy":       {good, func(s *corev1.Secret) { s.OwnerReferences[0].UID = "other" }, nil, "no immutable copy"},
		"nobody's copy":        {good, func(s *corev1.Secret) { s.OwnerReferences = nil }, nil, "no immutable copy"},
		"nobody's pod":         {good, nil, func(p *corev1.Pod) { p.OwnerReferences = nil }, "no DaemonSet owns the pod"},
		"another kind's pod":   {good, nil, func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "StatefulSet" }, "no DaemonSet owns the pod"},
		"another content":      {good, nil, func(p *corev1.Pod) { p.Labels = nil }, "is for content"},
		"no annotation's text": {good, nil, func(p *corev1.Pod) { p.Annotations[content.LiveName] = "{}" }, "not as it was written"},
	} {
		plugin := New(controller, &Stored{ConfigMaps: getter{}, Secrets: getter{good: secret(good, c.change)}})
		now := pod(t, c.copied)
		if c.pod != nil {
			c.pod(now)
		}
		err := validate(t, plugin, controller, "", admission.Update, pod(t, ""), now)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func validate(t *testing.T, p admission.ValidationInterface, who, sub string, op admission.Operation, old, now runtime.Object) error {
	t.Helper()
	a := admission.NewAttributesRecord(now, old, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "agent-1",
		corev1.SchemeGroupVersion.WithResource("pods"), sub, op, nil, false, &user.DefaultInfo{Name: who})
	return p.Validate(t.Context(), a, nil)
}
